"""The plan: what the user declared, as plain data. The engine reads it; nothing here runs.

A plan is a graph of frozen nodes, from sources to views and sinks. Expressions are Spark SQL text that was checked when
it was declared. Durations are whole microseconds. A node's `place` says where it was declared and is no part of what it
is: two nodes that differ only in their places are the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Emit = Literal["final", "changes"]
Late = Literal["correct", "drop"]
Ties = Literal["break", "keep"]
How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known about the rows a node gives before anything runs.

    `columns` is None behind a `map` without a schema: they are known when the app starts. `time` is the column with the
    event time. `key` names the columns that no two rows share, None where there are none such (a stream). `retracts`
    says whether rows may be taken back later. `time_is_end` says that the time is the end of a window, which is itself
    not part of it: the row belongs to the moment before.
    """

    columns: tuple[str, ...] | None
    time: str | None = None
    key: tuple[str, ...] | None = None
    retracts: bool = False
    time_is_end: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the name of the column it makes."""

    name: str
    expression: str


# -- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, one after the other, the first beginning `offset` after 1970 began (in `zone`, if given).

    With a zone the size is a number of whole days, and a window is as long as those days are there.
    """

    size: int
    offset: int = 0
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one size of which one begins after every `every`; they overlap where `every` is less than `size`."""

    size: int
    every: int
    offset: int = 0
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Sliding:
    """For each moment at which a group has an event: the events of that group within `size` up to it.

    From `size` before (exclusive) to the moment itself (inclusive).
    """

    size: int


@dataclass(frozen=True, slots=True)
class Session:
    """Events of a group with less than `gap` between one and the next; it ends `gap` after its last event."""

    gap: int

    @property
    def reach(self) -> int:
        """How long after its end, beside `keep`, a session can still change.

        The piece of an event that is not late ends less than `gap` and `keep` before the watermark, and begins a gap
        earlier; an event in it can only join a session that ends after it.
        """
        return 2 * self.gap


Window = Tumbling | Hopping | Sliding | Session


@dataclass(frozen=True, slots=True)
class Windowing:
    """A window and what becomes of its results; `keep` is how long after its end a window can still be corrected."""

    window: Window
    emit: Emit = "final"
    late: Late = "correct"
    keep: int = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Lateness:
    """When an event is too late: `keep` after its time, or after the end of its window, if there is one.

    By the watermark of these topics together, of which it may be `delay` behind.
    """

    keep: int
    window: Window | None
    topics: tuple[str, ...]
    delay: int


# The inputs of a node count when nodes are compared, and not when they are hashed: the hash of a union of a node with
# itself would walk that node twice, and nested ones would take for ever.

# -- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    """How a stream's event time is read and how far it is trusted.

    With `sent` (and `received`, by default when the log stored the event) the event time is corrected by the
    difference of the two clocks, and stands in the column `event_time`.
    """

    column: str
    lateness: int = 0
    idle: int = 30_000_000
    max_ahead: int = 600_000_000
    sent: str | None = None
    received: str | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the log as a stream of its rows."""

    name: str
    schema: str
    key: tuple[str, ...]
    partitions: int
    timing: Timing | None
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Changelog:
    """A keyed topic as a table: the last row of each key counts, and a delete marker takes it away."""

    name: str
    schema: str
    key: tuple[str, ...]
    partitions: int
    time: str | None
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Where:
    input: Node = field(hash=False)
    condition: str
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Select:
    """New columns from old ones: what `select`, `with_columns`, `drop` and `rename` become.

    Where the input's columns are not known yet, `rest` says to put all its other columns first, without those in
    `without`. Else `columns` is complete.
    """

    input: Node = field(hash=False)
    columns: tuple[Named, ...]
    shape: Shape
    place: Place = field(compare=False)
    rest: bool = False
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Map:
    """Any stateless function from DataFrame to DataFrame. `fingerprint` changes when its code does."""

    input: Node = field(hash=False)
    function: Callable[[Any], Any] = field(compare=False)
    fingerprint: str
    schema: str | None
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Union:
    inputs: tuple[Node, ...] = field(hash=False)
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Distinct:
    """The first row, by event time, of those that agree in `columns`; `within`: of each burst of them.

    A row is left out if another one with the same values has happened less than `within` before it (ever, where
    `within` is None). `late` says which rows come too late: for what lies behind, or else to belong to a burst. The
    first kind could take the place of another row, and would then itself be nowhere. None: they never do.
    """

    input: Node = field(hash=False)
    columns: tuple[str, ...]
    within: int | None
    shape: Shape
    place: Place = field(compare=False)
    late: Lateness | None = None


@dataclass(frozen=True, slots=True)
class Latest:
    """A table with the newest row of each key: by event time where there is one, then in the order of the log."""

    input: Node = field(hash=False)
    key: tuple[str, ...]
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Changes:
    """A table's changes as a stream: its columns, and `change`, which is 'added' or 'removed'."""

    input: Node = field(hash=False)
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Order:
    """A column or expression to order by. Nulls are the smallest values."""

    expression: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Top:
    """The first `count` rows of each group in an order, with their `rank` from 1 on.

    `ties="keep"` gives rows that are equal in the order the same rank and keeps all of those up to `count`;
    `"break"` tells them apart in some fixed way.
    """

    input: Node = field(hash=False)
    count: int
    order: tuple[Order, ...]
    per: tuple[str, ...]
    ties: Ties
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A row for each group (and window, if there is one) with the values of its aggregates."""

    input: Node = field(hash=False)
    keys: tuple[Named, ...]
    windowing: Windowing | None
    aggregates: tuple[Named, ...]
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Two columns that must be equal. With one name they stand once in the result: the value of the side with a row."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Join:
    """The pairs of rows that agree in `on`, however far apart in time; both sides are kept for ever.

    `how` says of which side rows without a partner are given too, once; or that only left rows are given, once each:
    those with a partner ("semi") or without ("anti"). Null is equal to nothing, to null only with `nulls_match`. The
    columns are the left ones, then the right ones that do not stand there yet.
    """

    left: Node = field(hash=False)
    right: Node = field(hash=False)
    on: tuple[JoinKey, ...]
    how: How
    nulls_match: bool
    shape: Shape
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class TimedJoin:
    """A join of two streams whose events are near in time: right time - left time is from -`before` to `after`.

    Both ends are included. An event without a partner is given when no partner in time can come any more. A partner
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
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class AsOfJoin:
    """Each event of a stream with the row of a table that has its key; "left" also gives events that find none.

    `as_of` is the left column with a moment: the version of the row counts that was valid then, by the table's time.
    A change that becomes known later corrects the answer, until `keep` after the event. Without `as_of` it is the row
    that is known when the event is joined, and no later change touches the answer. The right columns of `on` are the
    key of the table, so that there is at most one row; null is equal to nothing.
    """

    left: Node = field(hash=False)
    right: Node = field(hash=False)
    on: tuple[JoinKey, ...]
    how: How
    as_of: str | None
    keep: int
    shape: Shape
    place: Place = field(compare=False)


Source = Topic | Changelog
AnyJoin = Join | TimedJoin | AsOfJoin
Node = Source | Where | Select | Map | Union | Distinct | Latest | Changes | Top | Aggregate | AnyJoin


@dataclass(frozen=True, slots=True)
class View:
    """A named answer that is kept."""

    name: str
    node: Node
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """A named answer whose changes are written to a topic of the log; one with a key as a row or a delete per key."""

    name: str
    node: Node
    topic: str
    partitions: int
    place: Place = field(compare=False)

    @property
    def target(self) -> str:
        return TOPICS

    @property
    def destination(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class ExternalSink:
    """A named answer that is mirrored outside of the log, in the target of a URL."""

    name: str
    node: Node
    url: str
    place: Place = field(compare=False)

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
    """All that an app declares."""

    app: str
    outputs: tuple[Output, ...]

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(one for one in self.outputs if isinstance(one, View))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that write topics."""
        return tuple(one for one in self.outputs if isinstance(one, Sink))

    @property
    def external_sinks(self) -> tuple[ExternalSink, ...]:
        return tuple(one for one in self.outputs if isinstance(one, ExternalSink))

    @property
    def all_sinks(self) -> tuple[AnySink, ...]:
        return tuple(output for output in self.outputs if not isinstance(output, View))

    def sinks_to(self, target: str) -> tuple[AnySink, ...]:
        """The sinks that a target writes."""
        return tuple(sink for sink in self.all_sinks if sink.target == target)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes a node reads from; none for a source."""
    if isinstance(node, Union):
        return node.inputs
    if isinstance(node, Topic | Changelog):
        return ()
    if isinstance(node, Join | TimedJoin | AsOfJoin):
        return (node.left, node.right)
    return (node.input,)


def nodes(plan: Plan) -> Iterator[Node]:
    """Every node once, each after those it reads from."""
    return upstream(*(one.node for one in plan.outputs))


def upstream(*ends: Node) -> Iterator[Node]:
    """These nodes and all that they read from, every one once, each after those it reads from."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        for one in inputs(node):
            yield from visit(one)
        yield node

    for end in ends:
        yield from visit(end)
