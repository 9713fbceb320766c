"""The plan: what the user declares, as plain data. The engine reads it; nothing here runs.

A plan is a graph of frozen nodes, from sources to views and sinks. Expressions are Spark SQL text, checked when they
are declared. Durations are whole microseconds. `location` is where a node was declared. It does not count when nodes
are compared: two nodes that differ only in their locations are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

MessageFormat = Literal["debezium", "maxwell"]
TimeUnit = Literal["s", "ms", "us", "ns"]
Emit = Literal["final", "changes"]
Late = Literal["correct", "drop"]
Ties = Literal["break", "keep"]
How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known about the rows of a node before anything runs.

    `columns` is None after a `map` without a schema: they are known when the app starts. `time` is the column with the
    event time. No two rows agree in all columns of `key`; it is None if there is no key (a stream). `retracts` says
    whether rows may be taken back later. `time_is_end` says that the time is the end of a window. The end itself is not
    part of the window, so that the row belongs to the moment before it.
    """

    columns: tuple[str, ...] | None
    time: str | None = None
    key: tuple[str, ...] | None = None
    retracts: bool = False
    time_is_end: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the name of the column that it computes."""

    name: str
    expression: str


# -- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one after the other, counted from the start of 1970 (in `zone`, if given) plus `offset`.

    With a zone the size is a number of whole days, and a window is as long as these days are in that zone.
    """

    size: int
    offset: int = 0
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one size, a new one after each `every`; they overlap if `every` is less than `size`."""

    size: int
    every: int
    offset: int = 0
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Sliding:
    """For each moment at which a group has an event: the events of that group in the `size` up to that moment.

    The window is from `size` before the moment (exclusive) to the moment itself (inclusive).
    """

    size: int


@dataclass(frozen=True, slots=True)
class Session:
    """Events of a group with less than `gap` between one and the next; it ends `gap` after its last event.

    Time is divided into pieces as long as the gap, so that a piece never belongs to two sessions. The events of a piece
    become late together, so that accounts do not depend on which of them came in the same epoch.
    """

    gap: int

    @property
    def reach(self) -> int:
        """How long after the start of its piece of time, plus `keep`, an event becomes late.

        That is a gap after the end of the piece. It is also how long after its end, plus `keep`, a session can still
        change: an event that joins it happened before that end, and so did the start of the event's piece.
        """
        return 2 * self.gap


Window = Tumbling | Hopping | Sliding | Session


@dataclass(frozen=True, slots=True)
class Windowing:
    """A window and what becomes of its results; `keep` is how long after its end it accepts late events."""

    window: Window
    emit: Emit = "final"
    late: Late = "correct"
    keep: int = 3_600_000_000

    @property
    def correction_period(self) -> int:
        """How long after its end the answer of a window can still change."""
        return self.keep + (self.window.reach if isinstance(self.window, Session) else 0)


@dataclass(frozen=True, slots=True)
class Lateness:
    """When an event is too late: `keep` after its time, or after the end of its window, if there is one.

    The time is the common watermark of `topics`, minus `delay`.
    """

    keep: int
    window: Window | None
    topics: tuple[str, ...]
    delay: int


# The inputs of a node count when nodes are compared, but not when they are hashed: the hash of a union of a node with
# itself would walk that node twice, and nested unions would take forever.

# -- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    """How a stream's event time is read and how far it is trusted.

    With `sent` (and `received`, by default when the log stored the event) the event time is corrected by the
    difference of the two clocks. The corrected time is in the column `event_time`.
    """

    column: str
    lateness: int = 0
    idle: int = 30_000_000
    max_ahead: int = 600_000_000
    sent: str | None = None
    received: str | None = None


@dataclass(frozen=True, slots=True)
class CapturedFrom:
    """Where the rows of a topic are captured: the URL of the database as it may be shown, and the table there.

    It does not count when nodes are compared: a database that has moved is the same source.
    """

    url: str
    table: str
    capture: str

    def __str__(self) -> str:
        return f"captured from {self.url}, table {self.table}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the log as a stream of its rows.

    `earlier_schemas` are those that earlier versions of the program declared, oldest first. They are not part of what
    the node does: steps that use the same columns of an earlier schema keep the fingerprint that they had with it.
    """

    name: str
    schema: str
    key: tuple[str, ...]
    partitions: int
    timing: Timing | None
    shape: Shape
    location: Location = field(compare=False)
    earlier_schemas: tuple[str, ...] = ()
    captured: CapturedFrom | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Changelog:
    """A keyed topic as a table: the last row of each key counts, and a delete marker removes it."""

    name: str
    schema: str
    key: tuple[str, ...]
    partitions: int
    time: str | None
    shape: Shape
    location: Location = field(compare=False)
    captured: CapturedFrom | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Messages:
    """How the messages of another tool are read. `table` is the one they are about, where a topic has several."""

    format: MessageFormat
    table: str
    time_unit: TimeUnit | None = None


@dataclass(frozen=True, slots=True)
class MessageTable(Changelog):
    """A table whose changes another tool writes as messages to the topic `name`, which has their `key` and `value`.

    The schema and the key are those of the table; the topic has its own.
    """

    messages: Messages = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Where:
    input: Node = field(hash=False)
    condition: str
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Select:
    """New columns from old ones: what `select`, `with_columns`, `drop` and `rename` become.

    If the columns of the input are not known yet, `rest` says to put all its other columns first, except those in
    `without`. Otherwise `columns` is complete.
    """

    input: Node = field(hash=False)
    columns: tuple[Named, ...]
    shape: Shape
    location: Location = field(compare=False)
    rest: bool = False
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Map:
    """Any stateless function from DataFrame to DataFrame. `fingerprint` changes when its code changes."""

    input: Node = field(hash=False)
    function: Callable[[Any], Any] = field(compare=False)
    fingerprint: str
    schema: str | None
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Union:
    inputs: tuple[Node, ...]
    shape: Shape
    location: Location = field(compare=False)

    def __hash__(self) -> int:
        """Unions differ in little but their inputs, and equal hashes would make sets of many unions slow.

        So its inputs count, but not the inputs of those that are unions themselves.
        """
        return hash((self.shape, *(len(part.inputs) if isinstance(part, Union) else part for part in self.inputs)))


@dataclass(frozen=True, slots=True)
class Distinct:
    """The first row, by event time, of those that agree in `columns`; with `within`, of each burst of them.

    A row is left out if another one with the same values happened less than `within` before it (or ever before it, if
    `within` is None). `late` says which rows are too late, for a step downstream or to belong to a burst: a row that is
    too late downstream could replace another one here, and then neither would be there. None: no row is too late.
    """

    input: Node = field(hash=False)
    columns: tuple[str, ...]
    within: int | None
    shape: Shape
    location: Location = field(compare=False)
    late: Lateness | None = None


@dataclass(frozen=True, slots=True)
class Latest:
    """A table with the newest row of each key: by event time, if there is one, then in the order of the log."""

    input: Node = field(hash=False)
    key: tuple[str, ...]
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table as a stream: its columns, and `change`, which is 'added' or 'removed'."""

    input: Node = field(hash=False)
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Order:
    """A column or expression to order by. Nulls are the smallest values."""

    expression: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    """The first `count` rows of each group in an order, with their `rank`, starting at 1.

    `ties="keep"` gives rows that are equal in the order the same rank and keeps all rows up to rank `count`;
    `"break"` orders them in some fixed way.
    """

    input: Node = field(hash=False)
    count: int
    order: tuple[Order, ...]
    per: tuple[str, ...]
    ties: Ties
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row for each group (and window, if there is one) with the values of its aggregates."""

    input: Node = field(hash=False)
    keys: tuple[Named, ...]
    windowing: Windowing | None
    aggregates: tuple[Named, ...]
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Two columns that must be equal. Under one name they are one column, with the value of the side that has a row."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Join:
    """The pairs of rows that agree in `on`, however far apart in time; both sides are kept forever.

    `how` says which sides also give their rows without a partner, once each; or that only left rows are given, once
    each: those with a partner ("semi") or without ("anti"). Null equals nothing, and null only with `nulls_match`. The
    columns are those of the left side, then those of the right side that are not yet included.
    """

    left: Node = field(hash=False)
    right: Node = field(hash=False)
    on: tuple[JoinKey, ...]
    how: How
    nulls_match: bool
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class TimedJoin:
    """A join of two streams whose events are near in time: right time - left time is from -`before` to `after`.

    Both ends are included. An event without a partner is given when no partner can come in time any more. A partner
    that comes later corrects that, until `keep` after the last moment that a partner can have.
    """

    left: Node = field(hash=False)
    right: Node = field(hash=False)
    on: tuple[JoinKey, ...]
    how: How
    before: int
    after: int
    keep: int
    nulls_match: bool
    shape: Shape
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class AsOfJoin:
    """Each event of a stream with the row of a table that has its key; "left" also gives events that find no row.

    `as_of` is the left column with a moment: the event gets the version of the row that was valid then, by the time of
    the table. A change that becomes known later corrects the answer, until `keep` after the event. Without `as_of` the
    event gets the row that is known when it is joined, and later changes do not affect it. The right columns of `on`
    are the key of the table, so that there is at most one row; null equals nothing.
    """

    left: Node = field(hash=False)
    right: Node = field(hash=False)
    on: tuple[JoinKey, ...]
    how: How
    as_of: str | None
    keep: int
    shape: Shape
    location: Location = field(compare=False)


Source = Topic | Changelog
AnyJoin = Join | TimedJoin | AsOfJoin
Node = Source | Where | Select | Map | Union | Distinct | Latest | Changes | Top | Aggregate | AnyJoin


@dataclass(frozen=True, slots=True)
class View:
    """A named answer that is kept."""

    name: str
    node: Node
    location: Location = field(compare=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """A named answer whose changes are written to a topic of the log; with a key, as a row or a delete per key."""

    name: str
    node: Node
    topic: str
    partitions: int
    location: Location = field(compare=False)

    @property
    def target(self) -> str:
        return TOPICS

    @property
    def destination(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class ExternalSink:
    """A named answer that is mirrored outside of the log, in the target that a URL names."""

    name: str
    node: Node
    url: str
    location: Location = field(compare=False)

    @property
    def target(self) -> str:
        return self.url

    @property
    def destination(self) -> str:
        return self.url


AnySink = Sink | ExternalSink
Output = View | AnySink
TOPICS = "topics"
"""The name of the target that writes topics of the log. The others are named by their URLs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that an app declares."""

    app: str
    outputs: tuple[Output, ...]

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(output for output in self.outputs if isinstance(output, View))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that write topics."""
        return tuple(output for output in self.outputs if isinstance(output, Sink))

    @property
    def external_sinks(self) -> tuple[ExternalSink, ...]:
        return tuple(output for output in self.outputs if isinstance(output, ExternalSink))

    @property
    def all_sinks(self) -> tuple[AnySink, ...]:
        return tuple(output for output in self.outputs if not isinstance(output, View))

    def sinks_to(self, target: str) -> tuple[AnySink, ...]:
        """The sinks that a target writes."""
        return tuple(sink for sink in self.all_sinks if sink.target == target)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that a node reads; none for a source."""
    if isinstance(node, Union):
        return node.inputs
    if isinstance(node, Topic | Changelog):
        return ()
    if isinstance(node, Join | TimedJoin | AsOfJoin):
        return (node.left, node.right)
    return (node.input,)


def union_parts(node: Union) -> list[Node]:
    """The inputs of a union; for those that are unions themselves, their inputs."""
    parts: list[Node] = []
    pending: list[Node] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, Union):
            pending.extend(reversed(part.inputs))
        else:
            parts.append(part)
    return parts


def nodes(plan: Plan) -> Iterator[Node]:
    """Every node once, each after the nodes that it reads."""
    return upstream(*(output.node for output in plan.outputs))


def upstream(*ends: Node) -> Iterator[Node]:
    """These nodes and everything that they read, each node once, after the nodes that it reads itself."""
    seen: set[Node] = set()
    # The nodes on the way down, each with its siblings that are still to visit. Not recursive: plans can be deep.
    path: list[tuple[Node, Iterator[Node]]] = []
    for end in ends:
        pending = iter((end,))
        while True:
            node = next(pending, None)
            if node is not None and node not in seen:
                seen.add(node)
                path.append((node, pending))
                pending = iter(inputs(node))
            elif node is None:
                if not path:
                    break
                node, pending = path.pop()
                yield node
