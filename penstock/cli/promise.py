"""`penstock promise`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson, LogPath, TopicName, open_log
from penstock.cli.output import instant_text, print_json, print_line
from penstock.errors import DeclarationError
from penstock.suggest import closest

if TYPE_CHECKING:
    from penstock.log import Log

Time = Annotated[
    str, typer.Argument(metavar="TIME", help="Nothing earlier will follow: 2026-01-31T12:00:00Z; UTC without a zone.")
]
OnlyProducer = Annotated[
    str | None,
    typer.Option("--producer", metavar="NAME", help="Promise it for this producer only; without it, for all so far."),
]


@command
def promise(
    topic: TopicName,
    time: Time,
    producer: OnlyProducer = None,
    log_path: LogPath = DEFAULT_LOG,
    as_json: AsJson = False,
) -> None:
    """Promise that nothing earlier than a time will follow in a topic, so that windows before it can close.

    It counts for an app once that has read everything that is in the topic now. Rows that come in spite of it are not
    lost: they are late, as any row is that comes after its time. Without --producer it is promised for everybody who
    has written to the log so far, with a name or without one. A promise cannot be taken back.
    """
    with open_log(log_path) as log:
        moment = make_promise(log, topic, time, [producer_id(log, producer)] if producer is not None else None)
    if as_json:
        print_json({"topic": topic, "time": moment, "producer": producer})
    else:
        who = f"from producer '{producer}'" if producer is not None else "from anyone so far"
        print_line(f"promised: nothing earlier than {moment} will follow in '{topic}' {who}")


def make_promise(log: Log, topic: str, time: str, producers: list[int] | None) -> str:
    """Store a promise; the time as text."""
    moment = check_promise(topic, time)
    log.promise(topic, time, producers=producers)
    return moment


def check_promise(topic: str, time: str) -> str:
    """The time of a promise as text. DeclarationError if it is none."""
    from penstock.log import parse_moment

    try:
        return instant_text(parse_moment(time, where=f"topic '{topic}'"))
    except DeclarationError:
        raise DeclarationError(
            f"topic '{topic}': {time!r} is not a time to promise", hint="give a time such as 2026-01-31T12:00:00Z"
        ) from None


def producer_id(log: Log, name: str) -> int:
    """The id of a producer that exists."""
    names = {known: number for number, known in log.producers().items()}
    if name not in names:
        raise DeclarationError(
            f"producer '{name}': it has not written to this log; {', '.join(sorted(names)) or 'no producer'} has",
            hint=closest(name, list(names)) or "the names are those of --producer, and of captures",
        )
    return names[name]
