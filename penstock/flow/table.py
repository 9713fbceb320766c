"""Tables: rows that are true now, and are replaced or removed when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import DeclarationError
from penstock.flow import joins, shapes
from penstock.flow.groups import RankedGroups, WindowedRows, group_keys
from penstock.flow.joins import AsOf, JoinArguments, On
from penstock.flow.lateness import apply_window
from penstock.flow.location import Declaring
from penstock.flow.plan import Changes, Emit, How, Late, Ties, Window
from penstock.flow.rows import Rows, check_rows, top
from penstock.flow.stream import Stream


@dataclass(frozen=True, slots=True, repr=False)
class Table(Rows):
    """Rows that are kept up to date: a keyed topic, an aggregate, and what verbs make of them.

    Each verb returns a new table. When a row changes, everything that is derived from it changes too.
    """

    def group_by(self, /, *columns: str, **named: str) -> RankedGroups:
        """Group rows by columns, and by new ones given as `name="expression"`; without any, all in one group.

        `.group_by("country").agg(customers="count(*)")` counts the rows that exist now.
        """
        with Declaring("group_by"):
            return RankedGroups(self.node, group_keys(self.node, columns, named))

    def window(
        self, window: Window, *, emit: Emit = "final", late: Late = "correct", keep: str | None = None
    ) -> WindowedRows:
        """Group the results of a window by larger windows, like `Stream.window`: their time is `window_end`."""
        with Declaring("window"):
            return apply_window(self.node, window, emit, late, keep)

    def top(self, n: int, *, by: str, per: Sequence[str] = (), ties: Ties = "break") -> Table:
        """The first `n` rows in an order, with their `rank`: `.top(10, by="revenue desc", per=["country"])`.

        The parameters are those of `Stream.top`.
        """
        with Declaring("top") as location:
            return Table(top(self.node, n, by, per, ties, location))

    def join(
        self,
        other: Stream | Table | AsOf,
        *,
        on: On = (),
        how: How = "inner",
        within: str | None = None,
        before: str | None = None,
        keep: str | None = None,
        nulls_match: bool = False,
    ) -> Table:
        """Join rows with those of another table or stream that agree in some columns.

        `posts.join(follows, on={"author": "followed"})` has a row for each pair, and follows every change on both
        sides, which are kept forever. `on`, `how` and `nulls_match` are those of `Stream.join`; `within`, `before` and
        `keep` are only for two streams.
        """
        with Declaring("join") as location:
            arguments = JoinArguments(on, how, within, before, keep, nulls_match)
            if isinstance(other, AsOf):
                raise DeclarationError(
                    "rows are looked up for the events of a stream, and this is a table",
                    hint="join the other table itself, without as_of or latest: the result follows both",
                )
            joins.refuse_bounds(arguments)
            return Table(joins.untimed_join(self.node, check_rows(other).node, arguments, location))

    def as_of(self, column: str) -> AsOf:
        """This table as it was at the time of an event, to be joined with a stream that has this column.

        `orders.join(customers.as_of("placed_at"), on={"customer_id": "id"})` gives each order with the row of its
        customer that was valid then. The table says since when a row is valid: `app.table(..., time=...)`.
        """
        with Declaring("as_of"):
            return joins.as_of(self.node, column)

    def latest(self) -> AsOf:
        """This table as it is known when an event comes, to be joined with a stream.

        `orders.join(customers.latest(), on={"customer_id": "id"})` needs no times in the table and stores no events,
        but which row an event finds depends on what came before it: `as_of` gives the same answer in any order.
        """
        with Declaring("latest"):
            return joins.latest(self.node)

    def changes(self) -> Stream:
        """A stream of what happens to the rows: its columns, and `change`, which is 'added' or 'removed'.

        A row that is replaced is removed and added.
        """
        with Declaring("changes") as location:
            return Stream(Changes(self.node, shapes.changed(self.node.shape), location))
