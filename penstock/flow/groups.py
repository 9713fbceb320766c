"""Rows in groups and windows: the step between `group_by` and its aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Never

from penstock.calls import answer_methods
from penstock.errors import DeclarationError
from penstock.flow import shapes
from penstock.flow.expressions import check_aggregate, check_column, check_expression
from penstock.flow.habits import KEYWORDS, AnswersHabits, names_in, unnamed_refusal
from penstock.flow.location import Declaring, located
from penstock.flow.names import check_columns, quote
from penstock.flow.plan import Aggregate, Location, Named, Node, Ties, Windowing
from penstock.flow.rows import top, with_columns

if TYPE_CHECKING:
    from penstock.flow.table import Table


@answer_methods(KEYWORDS, locate=located)
@dataclass(frozen=True, slots=True, repr=False)
class Groups(AnswersHabits):
    """Rows grouped by columns. `agg` says what to compute for each group."""

    _shown_as: ClassVar[str] = "group_by(...)"

    node: Node
    keys: tuple[Named, ...]
    windowing: Windowing | None = None

    def __repr__(self) -> str:
        return "group_by(...)"

    def agg(self, /, *unnamed: Never, **named: str) -> Table:
        """A table with a row for each group: `.agg(revenue="sum(amount)", orders="count(*)")`.

        Each is an expression with at least one aggregate, any that Spark has, also with `filter (where ...)` and
        `distinct`. Inside an aggregate it can use all columns, outside only those of the group:
        `sum(amount) / count(*)`.

        With a window there is a row for each group and window. It also has `window_start`, `window_end` and `revision`,
        which is 0 and grows by one each time the row is corrected after it was final.
        """
        with Declaring("agg") as location:
            return aggregate(self, unnamed, named, location)


@answer_methods(KEYWORDS, locate=located)
@dataclass(frozen=True, slots=True, repr=False)
class RankedGroups(Groups):
    """Groups without a window. `top` keeps the first rows of each."""

    def top(self, n: int, *, by: str, ties: Ties = "break") -> Table:
        """A table with the first `n` rows of each group: `.group_by("category").top(10, by="price desc")`."""
        from penstock.flow.table import Table

        with Declaring("top") as location:
            computed = [key for key in self.keys if key.expression != quote(key.name)]
            node = with_columns(self.node, computed, location) if computed else self.node
            return Table(top(node, n, by, [key.name for key in self.keys], ties, location))


@answer_methods(KEYWORDS, locate=located)
@dataclass(frozen=True, slots=True, repr=False)
class WindowedRows(AnswersHabits):
    """Rows in windows of their event time. `group_by` says how to group the rows of a window, `agg` takes them all."""

    _shown_as: ClassVar[str] = "window(...)"

    node: Node
    windowing: Windowing

    def __repr__(self) -> str:
        return "window(...)"

    def group_by(self, /, *columns: str, **named: str) -> Groups:
        """The rows of each window by columns, and by new ones given as `name="expression"`; without any, one group.

        `.window(tumbling("1 minute")).group_by("country").agg(orders="count(*)")`
        """
        with Declaring("group_by"):
            return Groups(self.node, group_keys(self.node, columns, named), self.windowing)

    def agg(self, /, *unnamed: Never, **named: str) -> Table:
        """A table with a row for each window: `.window(tumbling("1 minute")).agg(orders="count(*)")`."""
        with Declaring("agg") as location:
            return aggregate(Groups(self.node, (), self.windowing), unnamed, named, location)


def aggregate(groups: Groups, unnamed: Sequence[object], named: Mapping[str, str], location: Location) -> Table:
    """A table with a row for each group; `unnamed` are arguments without a name, which are refused."""
    from penstock.flow.table import Table

    if unnamed:
        raise unnamed_refusal(unnamed, "agg", 'orders="count(*)"')
    if not named:
        raise DeclarationError('at least one aggregate is needed, such as orders="count(*)"; found none')
    keys, columns = [key.name for key in groups.keys], groups.node.shape.columns
    aggregates = tuple(Named(name, _check_named_aggregate(name, text, columns, keys)) for name, text in named.items())
    shape = shapes.aggregated(groups.keys, groups.windowing, aggregates)
    return Table(Aggregate(groups.node, groups.keys, groups.windowing, aggregates, shape, location))


def group_keys(node: Node, columns: Sequence[str], named: Mapping[str, str]) -> tuple[Named, ...]:
    """The checked arguments of `group_by`."""
    known = node.shape.columns
    plain = [Named(name, quote(name)) for name in (check_column(column, known) for column in names_in(columns))]
    instead = "group by columns of single rows; aggregates go to .agg(...)"
    computed = [Named(name, check_expression(text, known, instead=instead)) for name, text in named.items()]
    check_columns([key.name for key in (*plain, *computed)])
    return (*plain, *computed)


def _check_named_aggregate(name: str, text: str, columns: Sequence[str] | None, keys: Sequence[str]) -> str:
    try:
        return check_aggregate(text, columns, keys)
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error.message}", hint=error.hint) from None
