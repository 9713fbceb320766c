"""Tables: rows that are true now, and are replaced or taken away when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import DeclarationError
from penstock.flow import joins, shapes
from penstock.flow.grouped import RankedGroups, Windowed, group_keys
from penstock.flow.joins import Asked, AsOf, On
from penstock.flow.lateness import windowed
from penstock.flow.place import Declaring
from penstock.flow.plan import Changes, Emit, How, Late, Ties, Window
from penstock.flow.rows import Rows, other_rows, top
from penstock.flow.stream import Stream


@dataclass(frozen=True, slots=True, repr=False)
class Table(Rows):
    """Rows that are kept up to date: a keyed topic, an aggregate, and what verbs make of them.

    Each verb returns a new table. When a row changes, everything made from it changes with it.
    """

    def group_by(self, /, *columns: str, **named: str) -> RankedGroups:
        """Rows by columns, and by new ones given as `name="expression"`; all in one group without any.

        `.group_by("country").agg(customers="count(*)")` counts the rows that are there now.
        """
        with Declaring("group_by"):
            return RankedGroups(self.node, group_keys(self.node, columns, named))

    def window(
        self, window: Window, *, emit: Emit = "final", late: Late = "correct", keep: str | None = None
    ) -> Windowed:
        """The results of a window by larger windows, as `Stream.window`: their time is `window_end`."""
        with Declaring("window"):
            return windowed(self.node, window, emit, late, keep)

    def top(self, n: int, *, by: str, per: Sequence[str] = (), ties: Ties = "break") -> Table:
        """The first `n` rows in an order, with their `rank`: `.top(10, by="revenue desc", per=["country"])`.

        The parameters are those of `Stream.top`.
        """
        with Declaring("top") as place:
            return Table(top(self.node, n, by, per, ties, place))

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
        """Rows together with those of another table or stream, by columns that are equal.

        `posts.join(follows, on={"author": "followed"})` has a row for each pair, and follows every change on both
        sides, which are kept for ever. `on`, `how` and `nulls_match` are those of `Stream.join`; `within`, `before` and
        `keep` are for two streams only.
        """
        with Declaring("join") as place:
            asked = Asked(on, how, within, before, keep, nulls_match)
            if isinstance(other, AsOf):
                raise DeclarationError(
                    "rows are looked up for the events of a stream, and this is a table",
                    hint="join the other table itself, without as_of or latest: the result follows both",
                )
            joins.refuse_bounds(asked)
            return Table(joins.joined(self.node, other_rows(other).node, asked, place))

    def as_of(self, column: str) -> AsOf:
        """This table as it was at the time of an event, to be joined with a stream that has this column.

        `orders.join(customers.as_of("placed_at"), on={"customer_id": "id"})` gives each order with the row of its
        customer that was valid then. The table says since when a row holds: `app.table(..., time=...)`.
        """
        with Declaring("as_of"):
            return joins.as_of(self.node, column)

    def latest(self) -> AsOf:
        """This table as it is known when an event comes, to be joined with a stream.

        `orders.join(customers.latest(), on={"customer_id": "id"})` needs no times in the table and remembers no events,
        but which row an event finds depends on what has come before it: `as_of` gives the same answer in any order.
        """
        with Declaring("latest"):
            return joins.latest(self.node)

    def changes(self) -> Stream:
        """A stream of what happens to the rows: its columns, and `change`, which is 'added' or 'removed'.

        A row that is replaced is removed and added.
        """
        with Declaring("changes") as place:
            return Stream(Changes(self.node, shapes.changed(self.node.shape), place))
