"""`penstock status`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.capture_status import capture_documents, print_captures
from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, open_log
from penstock.cli.output import age_text, count_text, instant_text, json_value, print_json, print_line, print_table
from penstock.units import format_size, now_microseconds

if TYPE_CHECKING:
    from penstock.engine.ledger.status import AppStatus, BackfillStatus, OutputStatus, TopicStatus
    from penstock.log import Log

WATCH_SECONDS = 2.0
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


@command
def status(
    app: Annotated[str | None, typer.Argument(metavar="APP", help="One app in detail; all apps without it.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every 2 seconds, until Ctrl-C.")] = False,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Show which apps and captures have run on a log, which are running, and how far behind they are.

    With a name: also what holds each topic's watermark back, what each view has missed, the last epochs, a backfill
    under way, savepoints, and what is kept on disk for the app. Works whether an app is running or not.
    """
    if watch and as_json:
        raise typer.BadParameter("choose --watch or --json")
    with open_log(log_path) as log:
        show = _shower(log, app, as_json=as_json)
        if not watch:
            show()
            return
        with suppress(KeyboardInterrupt):
            while True:
                if sys.stdout.isatty():
                    sys.stdout.write(_CLEAR_SCREEN)
                show()
                sys.stdout.flush()
                time.sleep(WATCH_SECONDS)


def _shower(log: Log, app: str | None, *, as_json: bool) -> Callable[[], None]:
    """The function that looks and prints."""
    from penstock.engine.ledger.status import app_status, app_statuses
    from penstock.paths import chosen_app

    if app is None:
        print_all = _print_all_as_json if as_json else _print_all
        return lambda: print_all(log, app_statuses(log))
    name = chosen_app(log.path, app)
    if as_json:
        return lambda: print_json({"log": str(log.path), **_document(app_status(log, name))})
    return lambda: _print_one(app_status(log, name))


# -- all apps ---------------------------------------------------------------------------------------------------------


def _print_all(log: Log, apps: list[AppStatus]) -> None:
    _print_apps(log, apps)
    print_captures(log)


def _print_apps(log: Log, apps: list[AppStatus]) -> None:
    if not apps:
        print_line(f"no app has run on {log.path}")
        return
    now = now_microseconds()
    columns = ("app", "state", "epoch", "committed", "lag", "oldest unread", "watermark", "late", "dead")
    print_table(columns, [_overview_row(found, now) for found in apps])
    notes = [f"{found.app}: {note}" for found in apps for note in _notes(found)]
    if notes:
        print_line()
    for note in notes:
        print_line(note)


def _overview_row(found: AppStatus, now: int) -> tuple[object, ...]:
    if found.problem is not None:
        return (found.app, _state(found), None, None, None, None, None, None, None)
    return (
        found.app,
        _state(found),
        found.epoch,
        _ago(found.committed_at, now),
        found.lag,
        _ago(found.oldest_unread, now),
        _instant(found.watermark),
        found.late,
        found.dead,
    )


def _state(found: AppStatus) -> str:
    if found.running is not None:
        return "running"
    return "unreadable" if found.problem is not None else "stopped"


def _notes(found: AppStatus) -> Iterator[str]:
    """What needs more words than fit into a table."""
    from penstock.engine.ledger.gaps import gap_text

    if found.problem is not None:
        yield found.problem + (f"; {found.hint}" if found.hint else "")
    if found.backfill is not None:
        yield backfill_text(found.backfill)
    if found.forgotten:
        yield "the log no longer keeps what it has not read; it can only be started with --rebuild"
    if found.running is None and found.planned is not None:
        yield f"epoch {found.planned:,} was interrupted; the next start runs it again"
    for topic in found.topics:
        if topic.dropped:
            yield f"topic '{topic.topic}', which it read, was dropped"
        if topic.lost:
            yield f"{count_text(topic.lost, 'row')} of topic '{topic.topic}' expired before it had read them"
    for gap in found.gaps:
        yield f"{', '.join(gap.outputs)} built without {gap_text(gap)}, which the log no longer had"


def backfill_text(backfill: BackfillStatus) -> str:
    """How far a backfill has come, and what it means for the other views."""
    progress = f"{backfill.share:.0%}, {backfill.read:,} of {count_text(backfill.total, 'row')}"
    return f"backfill of {', '.join(backfill.outputs)}: {progress}; all other views do not advance until it is done"


# -- one app ----------------------------------------------------------------------------------------------------------


def _print_one(found: AppStatus) -> None:
    now = now_microseconds()
    for name, value in _facts(found, now):
        print_line(f"{name + ':':<12}{value}")
    for note in _notes(found):
        print_line(f"{'note:':<12}{note}")
    topics = [_topic_row(topic, now) for topic in found.topics]
    _print_section(("topic", "lag", "oldest unread", "watermark", "held back by"), topics)
    _print_section(("output", "state", "events", "late", "dead", "filtered"), map(_output_row, found.outputs))
    epochs = [
        (each.epoch, each.track or f"restored {each.restored_from}", each.rows, f"{each.seconds:.2f}", each.late,
         each.dead, instant_text(each.committed_at))
        for each in found.epochs
    ]  # fmt: skip
    _print_section(("epoch", "track", "rows", "seconds", "late", "dead", "committed"), epochs)
    savepoints = [
        (each.name, each.epoch, _instant(each.created), each.problem or format_size(each.bytes or 0))
        for each in found.savepoints
    ]
    _print_section(("savepoint", "epoch", "created", "size"), savepoints)
    holds = [(each.holder, each.keeps, each.rows, format_size(each.bytes)) for each in found.holds]
    _print_section(("kept for", "what", "rows", "size"), holds)


def _print_section(columns: tuple[str, ...], rows: Iterable[Sequence[object]]) -> None:
    shown = list(rows)
    if shown:
        print_line()
        print_table(columns, shown)


def _facts(found: AppStatus, now: int) -> Iterator[tuple[str, str]]:
    yield "app", found.app
    state = _state(found)
    if found.running is not None:
        state += f" in {found.running}, since {instant_text(found.running.since)} ({_ago(found.running.since, now)})"
    yield "state", state
    if found.problem is None:
        committed = "none committed yet"
        if found.committed_at is not None:
            committed = f"{found.epoch:,}, committed {_ago(found.committed_at, now)} ago"
        yield "epoch", committed
    if found.running is not None and found.planned is not None:
        since = "" if found.planned_at is None else f", planned {_ago(found.planned_at, now)} ago"
        yield "running", f"epoch {found.planned:,}{since}"


def _topic_row(topic: TopicStatus, now: int) -> tuple[object, ...]:
    if topic.dropped:
        return topic.topic, None, None, None, "the topic was dropped"
    return topic.topic, topic.lag, _ago(topic.oldest_unread, now), _instant(topic.watermark), _held_by(topic, now)


def _held_by(topic: TopicStatus, now: int) -> str | None:
    if topic.finished:
        return "nobody: --finish moved it here"
    if topic.watermark is None:
        return None
    producer = topic.held_by
    if producer is None:
        return "nobody: all producers are silent"
    name = "rows without a producer" if producer.name is None else f"producer '{producer.name}'"
    if producer.newest is None or producer.last_append is None:
        return name
    if producer.silent:
        return f"nobody: {name} silent for longer than `idle`, last row {_ago(producer.last_append, now)} ago"
    return f"{name}: at {instant_text(producer.newest)}, last row {_ago(producer.last_append, now)} ago"


def _output_row(output: OutputStatus) -> tuple[object, ...]:
    account = output.account
    state = "not advancing" if output.state == "waiting" else output.state
    return f"{output.kind} {output.name}", state, account.counted, account.late, account.dead, account.filtered


def _ago(moment: int | None, now: int) -> str | None:
    return None if moment is None else age_text(moment, now)


def _instant(moment: int | None) -> str | None:
    return None if moment is None else instant_text(moment)


# -- JSON -------------------------------------------------------------------------------------------------------------

_TIMES = ("since", "committed_at", "planned_at", "oldest_unread", "watermark", "newest", "last_append", "created")
# What is only read for one app.
_DETAILS = ("epochs", "savepoints", "holds")


def _print_all_as_json(log: Log, apps: list[AppStatus]) -> None:
    documents = [_document(found) for found in apps]
    for name in _DETAILS:
        for document in documents:
            del document[name]
    print_json({"log": str(log.path), "apps": documents, "captures": capture_documents(log)})


def _document(found: AppStatus) -> dict[str, object]:
    from penstock.engine.ledger.gaps import gap_document

    totals = {
        "lag": found.lag,
        "oldest_unread": found.oldest_unread,
        "watermark": found.watermark,
        "late": found.late,
        "dead": found.dead,
    }
    plain = asdict(found) | {"gaps": [json_value(gap_document(gap)) for gap in found.gaps]}
    document = {"app": plain.pop("app"), "state": _state(found), **totals, **plain}
    return {name: _with_instants(value, name) for name, value in document.items()}


def _with_instants(value: object, name: str = "") -> object:
    """The same values, with times as text."""
    if name in _TIMES and isinstance(value, int):
        return instant_text(value)
    if isinstance(value, dict):
        return {key: _with_instants(item, key) for key, item in value.items()}
    return [_with_instants(item) for item in value] if isinstance(value, list | tuple) else value
