"""Tables: rows that are true now, and are replaced or taken away when that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.flow import shapes
from penstock.flow.grouped import RankedGroups, Windowed, group_keys
from penstock.flow.place import Declaring
from penstock.flow.plan import Changes, Emit, Late, Ties, Window
from penstock.flow.rows import Rows, top
from penstock.flow.stream import Stream
from penstock.flow.timed import windowed


@dataclass(frozen=True, slots=True, repr=False)
class Table(Rows):
    """Rows that are kept up to date: a keyed topic, an aggregate, and what verbs make of them.

    Each verb returns a new table. When a row changes, everything made from it changes with it.
    """

    def group_by(self, *columns: str, **named: str) -> RankedGroups:
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

    def changes(self) -> Stream:
        """A stream of what happens to the rows: its columns, and `change`, which is 'added' or 'removed'.

        A row that is replaced is removed and added.
        """
        with Declaring("changes") as place:
            return Stream(Changes(self.node, shapes.changed(self.node.shape), place))
