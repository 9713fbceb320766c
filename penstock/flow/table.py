"""Tables: rows that are true now, and are replaced or removed when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.calls import answer_methods
from penstock.errors import DeclarationError
from penstock.flow import joins, shapes
from penstock.flow.groups import RankedGroups, WindowedRows, group_keys
from penstock.flow.habits import KEYWORDS
from penstock.flow.joins import JoinArguments, On
from penstock.flow.lateness import apply_window
from penstock.flow.location import Declaring, located
from penstock.flow.plan import Changes, Emit, How, Late, Ties, Window
from penstock.flow.rows import Rows, check_rows, top
from penstock.flow.stream import Stream


@answer_methods(KEYWORDS, locate=located)
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
        other: Stream | Table,
        on: On = (),
        how: How = "inner",
        *,
        as_of: str | None = None,
        within: str | None = None,
        before: str | None = None,
        keep: str | None = None,
        nulls_match: bool = False,
    ) -> Table:
        """Join rows with those of another table or stream that agree in some columns.

        `posts.join(follows, on={"author": "followed"})` has a row for each pair, and follows every change on both
        sides, which are kept forever. `on`, `how` and `nulls_match` are those of `Stream.join`; `as_of`, `within`,
        `before` and `keep` are for the events of streams.
        """
        with Declaring("join") as location:
            arguments = JoinArguments(on, how, as_of, within, before, keep, nulls_match)
            if as_of is not None:
                raise DeclarationError(
                    f"as_of looks up rows for the events of a stream, and this is a table; found as_of={as_of!r}",
                    hint="leave it out: the result is a table that follows both sides",
                )
            joins.refuse_bounds(arguments)
            return Table(joins.untimed_join(self.node, check_rows(other).node, arguments, location))

    def changes(self) -> Stream:
        """A stream of what happens to the rows: its columns, and `change`, which is 'added' or 'removed'.

        A row that is replaced is removed and added.
        """
        with Declaring("changes") as location:
            return Stream(Changes(self.node, shapes.changed(self.node.shape), location))
