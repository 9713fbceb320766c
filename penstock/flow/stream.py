"""Streams: events one after the other, each with its own time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, overload

from penstock.calls import answer_methods
from penstock.errors import DeclarationError
from penstock.flow import joins
from penstock.flow.as_of import as_of_join
from penstock.flow.expressions import check_column
from penstock.flow.groups import RankedGroups, WindowedRows, group_keys
from penstock.flow.habits import KEYWORDS, names_in
from penstock.flow.joins import JoinArguments, On
from penstock.flow.lateness import apply_window, burst_lateness, with_late_bound
from penstock.flow.location import Declaring, located
from penstock.flow.names import check_columns
from penstock.flow.plan import Distinct, Emit, How, Late, Latest, Shape, Ties, Window
from penstock.flow.rows import Rows, check_rows, top
from penstock.flow.windows import microseconds

if TYPE_CHECKING:
    from penstock.flow.table import Table


@answer_methods(KEYWORDS, locate=located)
@dataclass(frozen=True, slots=True, repr=False)
class Stream(Rows):
    """Events: those of a topic, and what verbs make of them. Each verb returns a new stream or table."""

    def distinct(self, *columns: str, within: str | None = None) -> Stream:
        """Of the events that agree in these columns (in all, if none is given), only the first by event time.

        `within` limits how far it looks back: an event is left out if another one like it happened less than that
        before it, so that `.distinct("message_id", within="1 hour")` only has to remember an hour. Without it
        everything is remembered forever. If an earlier event comes late, it replaces the one that was first.
        """
        with Declaring("distinct") as location:
            shape = self.node.shape
            chosen = tuple(check_column(name, shape.columns) for name in names_in(columns)) or shape.columns
            if chosen is None:
                raise DeclarationError(
                    "the columns are not known after a map without a schema", hint="name them, or give map a schema"
                )
            check_columns(chosen)
            if within is not None and shape.time is None:
                raise DeclarationError("within needs events with a time, and these have none")
            length = None if within is None else microseconds(within, "within")
            if length == 0:
                raise DeclarationError(f"within must be more than nothing; found {within!r}")
            unique = replace(shape, key=chosen if length is None else None, retracts=True)
            if length is None:
                return Stream(Distinct(self.node, chosen, length, unique, location))
            late = burst_lateness(self.node)
            return Stream(Distinct(with_late_bound(self.node, late), chosen, length, unique, location, late))

    def window(
        self, window: Window, *, emit: Emit = "final", late: Late = "correct", keep: str | None = None
    ) -> WindowedRows:
        """Group events by their time: `.window(tumbling("1 minute")).group_by("country").agg(...)`.

        - `window`: `tumbling(size)`, `hopping(size, every)`, `sliding(size)` or `session(gap)`.
        - `emit`: `"final"` gives a result when the watermark has passed the end of its window, `"changes"` also before
          that, whenever it changes.
        - `late`: an event that comes after that either corrects the result (`"correct"`), for as long as `keep` says (1
          hour by default), or goes to the topic `<topic>.late` (`"drop"`). After `keep`, it goes there too.
        """
        with Declaring("window"):
            return apply_window(self.node, window, emit, late, keep)

    def group_by(self, /, *columns: str, **named: str) -> RankedGroups:
        """Group events by columns, and by new ones given as `name="expression"`; without any, all in one group.

        `.group_by("country", day="date(placed_at)").agg(orders="count(*)")` counts over all time: without a window, a
        group is kept forever.
        """
        with Declaring("group_by"):
            return RankedGroups(self.node, group_keys(self.node, columns, named))

    def latest(self, *key: str) -> Table:
        """A table with the newest event of each key: `.latest("customer_id")`.

        The newest is the one with the largest event time, and of several with the same time the last in the log.
        """
        from penstock.flow.table import Table

        with Declaring("latest") as location:
            columns = tuple(check_column(name, self.node.shape.columns) for name in names_in(key))
            if not columns:
                raise DeclarationError('the columns of the key are needed, such as latest("customer_id"); found none')
            check_columns(columns)
            return Table(Latest(self.node, columns, replace(self.node.shape, key=columns, retracts=True), location))

    @overload
    def join(self, other: Table, on: On = (), how: How = "inner", *, as_of: str, keep: str | None = None) -> Stream: ...
    @overload
    def join(  # type: ignore[overload-overlap]
        self,
        other: Stream,
        on: On = (),
        how: How = "inner",
        *,
        within: Literal["forever"],
        nulls_match: bool = False,
    ) -> Table: ...
    @overload
    def join(
        self,
        other: Stream,
        on: On = (),
        how: How = "inner",
        *,
        within: str,
        before: str | None = None,
        keep: str | None = None,
        nulls_match: bool = False,
    ) -> Stream: ...
    @overload
    def join(self, other: Table, on: On = (), how: How = "inner", *, nulls_match: bool = False) -> Table: ...

    def join(
        self,
        other: Stream | Table,
        on: On = (),
        how: How = "inner",
        *,
        as_of: str | None = None,
        within: str | None = None,
        before: str | None = None,
        keep: str | None = None,
        nulls_match: bool = False,
    ) -> Stream | Table:
        """Join events with events or rows that agree in some columns. There are three ways:

        - `searches.join(clicks, on="search_id", within="1 hour", how="left")`: two streams whose events are near in
          time. The right event happens at most `within` after the left one, and at most `before` before it (by default
          not before it). The result is a stream. An event without a partner is given when no partner can come in time
          any more; a late partner corrects that for as long as `keep` says (1 hour by default). With
          `within="forever"` the result is a table of all pairs, and both streams are kept forever.
        - `orders.join(customers, on={"customer_id": "id"}, as_of="placed_at")`: each event with the row of a table that
          was valid at its time, or, with `as_of="now"`, with the row that is known when the event comes. The result is
          a stream: later changes of the table do not affect it. `how` is inner or left. Changes that become known late
          correct what was looked up as of a time, for as long as `keep` says.
        - `orders.join(customers, on={"customer_id": "id"})`: the table as it is. The result is a table, in which a row
          changes whenever either side does. Both sides are kept forever.

        `on` is a column or a list of columns that both sides have, or pairs of columns:
        `{"left column": "right column"}`. Columns that are joined under one name are one column in the result; all
        other names must differ. `how` is inner, left, right, full, semi (events that have a partner) or anti (events
        that have none). Null equals nothing, and null only with `nulls_match=True`.
        """
        from penstock.flow.table import Table

        with Declaring("join") as location:
            arguments = JoinArguments(on, how, as_of, within, before, keep, nulls_match)
            right = check_rows(other)
            if as_of is not None:
                if isinstance(right, Stream):
                    raise DeclarationError(
                        f"as_of looks up rows of a table, and the right side is a stream; found as_of={as_of!r}",
                        hint="make it a table, .latest(...), or bound the time between both: within='1 hour'",
                    )
                return Stream(as_of_join(self.node, right.node, arguments, location))
            if not isinstance(right, Stream):
                joins.refuse_bounds(arguments)
            elif joins.is_bounded(arguments):
                return Stream(joins.timed_join(self.node, right.node, arguments, location))
            return Table(joins.untimed_join(self.node, right.node, arguments, location))

    def top(self, n: int, *, by: str, per: Sequence[str] = (), ties: Ties = "break") -> Table:
        """The first `n` events in an order, with their `rank`: `.top(10, by="price desc", per=["category"])`.

        `by` has columns or expressions, each with `desc` if the largest come first; nulls are the smallest values.
        `ties="keep"` gives events that are equal in the order the same rank, and keeps all of them; `"break"` orders
        them in some fixed way, so that there are never more than `n`.
        """
        from penstock.flow.table import Table

        with Declaring("top") as location:
            return Table(top(self.node, n, by, per, ties, location))

    def _shape_after_map(self, shape: Shape) -> Shape:
        return replace(shape, key=None)
