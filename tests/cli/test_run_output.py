"""What `penstock run` prints about epochs: lines that fit, totals, and how long a catch-up takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cli.run_output import CatchUp, catch_up_line, describe_instance, duration_text, fit, progress_line
from penstock.engine.ledger.instances import RunningInstance
from penstock.engine.progress import Progress, Totals

NOON = 1_767_268_800_123_456  # 2026-01-01T12:00:00.123456Z


def progress(*, rows: int = 18_332, lag: int = 0, late: int = 0, dead: int = 0, building: bool = False) -> Progress:
    totals = Totals(7, 100_000, late, dead)
    return Progress(1204, rows, lag, NOON, 0, 0, building, 0.31, {}, totals)


def test_a_line_shows_the_totals_of_late_and_dead_rows() -> None:
    assert progress_line(progress(late=12, dead=3), None) == (
        "epoch 1,204, 18,332 rows in 0.31 s, lag 0, watermark 2026-01-01T12:00:00Z, late 12, dead 3"
    )


@pytest.mark.parametrize("width", [59, 79, 99])
@pytest.mark.parametrize("dead", [0, 123_456])
@pytest.mark.parametrize("building", [False, True])
def test_lines_fit_the_terminal_and_keep_what_matters(width: int, dead: int, building: bool) -> None:
    line = progress_line(progress(lag=1_234_567, late=1_234, dead=dead, building=building), width)
    assert len(line) <= width
    assert line.startswith("epoch 1,204, ")
    assert "lag 1,234,567" in line
    assert "late 1,234" in line
    assert ("dead 123,456" in line) == bool(dead)


def test_a_catch_up_has_a_bar_and_says_how_long_it_takes() -> None:
    line = catch_up_line("catching up", 250, 750, 95.0, 79)
    assert line == "catching up ━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  25%, 750 rows to go, about 1 min 35 s left"
    assert catch_up_line("catching up", 250, 750, 95.0, None) == (
        "catching up: 25%, 750 rows to go, about 1 min 35 s left"
    )
    assert "more come in than are read" in catch_up_line("catching up", 250, 750, None, 79)


@pytest.mark.parametrize("width", [20, 40, 59, 79])
def test_the_bar_fits_the_terminal(width: int) -> None:
    line = catch_up_line("building changed views", 1_000_000_000, 123_456_789_000, 123_456.0, width)
    assert len(line) <= width


def test_the_time_that_remains_is_measured_over_epochs() -> None:
    catch_up = CatchUp()
    shown = []
    for second in range(1, 5):  # 1,000 rows in each second
        done = replace(progress(rows=1_000, lag=100_000 - 1_000 * second), seconds=1.0)
        catch_up.add(done, float(second))
        shown.append(catch_up.line(done, None))
    assert shown[0] is None  # of the first epoch nothing can be said
    assert shown[-1] == "catching up: 4%, 96,000 rows to go, about 1 min 36 s left"


def test_a_short_catch_up_and_one_that_is_over_have_no_bar() -> None:
    catch_up = CatchUp()
    for second in range(1, 5):
        done = progress(rows=1_000, lag=4_000 - 1_000 * second)
        catch_up.add(done, float(second))
        assert catch_up.line(done, None) is None


def test_more_topics_than_fit_are_counted() -> None:
    topics = ["orders", "customers", "payments"]
    assert fit("waiting for rows in ", topics, None) == "waiting for rows in orders, customers, payments"
    assert fit("waiting for rows in ", topics, 40) == "waiting for rows in orders and 2 more"


def test_an_instance_is_described_by_its_process_and_since_when() -> None:
    described = describe_instance(RunningInstance(3, "elsewhere", 4711, NOON))
    assert described == "process 4711 on elsewhere since 2026-01-01T12:00:00Z"


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (59, "59 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min")])
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
