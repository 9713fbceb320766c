"""Where sinks write: `to=ps.topic("alerts", partitions=2)`, or the URL of a target outside of the log."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.calls import answer_call
from penstock.errors import DeclarationError
from penstock.flow.location import Declaring, located
from penstock.flow.plan import Shape
from penstock.log import TopicSettings, check_topic


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """A topic that a sink writes, and in how many partitions it is created."""

    name: str
    partitions: int = 1


_HINTS = {"schema": "to read a topic: app.topic(...); the topic of a sink has the columns of its rows"}


@answer_call(_HINTS, locate=located)
def topic(name: str, *, partitions: int = 1) -> SinkTopic:
    """A topic of the log as the destination of a sink: `app.sink("alerts", rows, to=ps.topic("alerts", partitions=2))`.

    It is created with that many partitions when the app first runs. To read a topic: `app.topic(...)`.
    """
    with Declaring(f"topic {name!r}"):
        destination = SinkTopic(name, partitions)
        check_sink_topic(destination)
        return destination


def check_sink_topic(destination: SinkTopic) -> None:
    """Raise DeclarationError unless a topic of this name can be created for a sink."""
    name = destination.name
    if not isinstance(name, str):
        raise DeclarationError(f"a topic has a name; found {name!r}", hint='ps.topic("alerts", partitions=2)')
    check_topic(name, pa.schema([]), TopicSettings(partitions=destination.partitions))
    if name.endswith((".late", ".dead")):
        raise DeclarationError(
            f"topic '{name}': names with this ending are for rows that are set aside", hint="choose another name"
        )


def check_key(shape: Shape) -> None:
    """Raise DeclarationError if rows can be retracted and a topic could not say which row is meant."""
    if not shape.key and (shape.retracts or shape.key is not None):
        raise DeclarationError(
            "its rows can be retracted but have no key, so the topic could not say which row a retraction means",
            hint='write its changes: .changes(); or keep one row of each key: .latest("id")',
        )


def check_url_shape(to: str) -> None:
    """Raise DeclarationError for a name where a URL is needed: a topic was probably meant."""
    if ":" not in to:
        raise DeclarationError(
            f"to: a target is a URL; found {to!r}",
            hint=f'for a topic of the log: to=ps.topic("{to}"); for a SQLite file: to="sqlite:///{to}.db"',
        )
