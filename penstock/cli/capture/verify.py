"""`penstock capture verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli.capture.find import CaptureName, ChosenTables, find_capture
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath
from penstock.cli.output import count_text, print_json, print_line, print_stderr, print_table, value_text

if TYPE_CHECKING:
    from penstock.capture.verify import TableComparison

_SHOWN = 50


@command
def verify(
    name: CaptureName = None, table: ChosenTables = None, log_path: LogPath = DEFAULT_LOG, as_json: AsJson = False
) -> None:
    """Compare tables with their copies, while both change. Every row that differs is shown; then the status is 1."""
    from penstock.capture.verify import Comparison

    found = []
    with find_capture(log_path, name) as capture, capture.database() as database:
        chosen = capture.declaration.checked_tables(tuple(table or ()))
        comparison = Comparison(database, capture.log, capture.name, capture.folder.is_running)
        for captured in capture.declaration.tables:
            if captured.table not in chosen:
                continue
            if captured.inserts_only:
                print_stderr(f"{captured.table}: not compared, since only inserted rows are captured")
                continue
            found.append(comparison.compare(captured.table, captured.topic))
            if not as_json:
                _print(found[-1])
    if as_json:
        print_json({"capture": capture.name, "tables": [{**asdict(one), "equal": one.is_equal} for one in found]})
    if not all(compared.is_equal for compared in found):
        raise typer.Exit(1)


def _print(compared: TableComparison) -> None:
    rows = count_text(compared.rows, "row")
    if compared.is_equal:
        print_line(f"{compared.table}: {rows}, equal to topic '{compared.topic}'")
    else:
        at_least = "at least " if compared.buckets_left else ""
        differ = count_text(len(compared.differences), "difference")
        print_line(f"{compared.table}: {rows}, {at_least}{differ} from topic '{compared.topic}'")
        print_line()
        print_table(("key", "difference", "column", "source", "copy"), _rows(compared))
        if len(compared.differences) > _SHOWN:
            print_line(f"... and {count_text(len(compared.differences) - _SHOWN, 'row')} more; --json has all")
    if compared.is_behind and not compared.is_equal:
        print_stderr(f"{compared.table}: no process captures, so changes since it stopped are among the differences")
    if compared.unsettled:
        print_stderr(f"{compared.table}: {count_text(compared.unsettled, 'row')} changed at every look; verify again")


def _rows(compared: TableComparison) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for difference in compared.differences[:_SHOWN]:
        key = ", ".join(value_text(value) for value in difference.key.values())
        if not difference.cells:
            rows.append((key, difference.what, None, None, None))
        rows += [
            (key, difference.what, cell.column, value_text(cell.source), value_text(cell.copy))
            for cell in difference.cells
        ]
    return rows
