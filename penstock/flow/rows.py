"""What streams and tables have in common: verbs that work on one row at a time, and `top`.

Each verb checks its arguments, makes a node of the plan, and returns a new stream or table with that node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, Self

from penstock.calls import answer_methods
from penstock.errors import DeclarationError
from penstock.flow import shapes
from penstock.flow.code import code_fingerprint
from penstock.flow.expressions import check_column, check_expression
from penstock.flow.habits import KEYWORDS, AnswersHabits, names_in, refuse_mappings, unnamed_refusal
from penstock.flow.location import Declaring, located
from penstock.flow.names import check_columns, check_free, quote
from penstock.flow.plan import Location, Map, Named, Node, Select, Shape, Ties, Top, Union, Where
from penstock.flow.top import read_orders
from penstock.schema.arrow import parse_schema, to_ddl
from penstock.schema.declared import AnySchema

if TYPE_CHECKING:
    from penstock.flow.table import Table

AGGREGATE_FIRST = "aggregate with group_by(...).agg(...) first, and use the result"


@answer_methods(KEYWORDS, locate=located)
@dataclass(frozen=True, slots=True, repr=False)
class Rows(AnswersHabits):
    """A stream or a table: a node of the plan, from which verbs make others. Nothing is computed here."""

    node: Node

    def __repr__(self) -> str:
        shape = self.node.shape
        columns = "columns known at the start" if shape.columns is None else ", ".join(shape.columns)
        return f"<{type(self).__name__}: {columns}>"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns; None after a `map` without a schema: then they are known when the app starts."""
        return self.node.shape.columns

    def where(self, condition: str) -> Self:
        """Only the rows for which the condition is true: `.where("amount > 100 and country = 'DE'")`."""
        with Declaring("where") as location:
            shape = self.node.shape
            text = check_expression(condition, shape.columns, instead=AGGREGATE_FIRST)
            return type(self)(Where(self.node, text, shape, location))

    filter = where

    def select(self, /, *columns: str, **named: str) -> Self:
        """Only these columns: names of columns, then new ones as `name="expression"`.

        `.select("order_id", total="price * quantity")`. A window needs the column with the event time, and a table
        keeps its key only if all columns of the key are selected.
        """
        with Declaring("select") as location:
            known = self.node.shape.columns
            kept = [Named(name, quote(name)) for name in (check_column(column, known) for column in names_in(columns))]
            chosen = (*kept, *_check_named_expressions(named, known))
            if not chosen:
                raise DeclarationError("at least one column is needed; found none")
            return self._select_columns(chosen, location)

    def with_columns(self, /, *unnamed: Never, **named: str) -> Self:
        """All columns and these new ones: `.with_columns(total="price * quantity")`.

        A column that exists is replaced and keeps its position. The expressions use the columns as they were before.
        """
        with Declaring("with_columns") as location:
            if unnamed:
                raise unnamed_refusal(unnamed, "with_columns", 'total="price * quantity"')
            if not named:
                raise DeclarationError("at least one column is needed; found none")
            return type(self)(
                with_columns(self.node, _check_named_expressions(named, self.node.shape.columns), location)
            )

    def drop(self, *names: str) -> Self:
        """All columns except these: `.drop("note")`."""
        with Declaring("drop") as location:
            known = self.node.shape.columns
            dropped = tuple(check_column(name, known) for name in names_in(names))
            if not dropped:
                raise DeclarationError("at least one column is needed; found none")
            if known is None:
                return self._select_columns((), location, without=dropped)
            left = tuple(Named(name, quote(name)) for name in known if name not in dropped)
            if not left:
                raise DeclarationError("no column would be left")
            return self._select_columns(left, location)

    def rename(self, /, *mappings: Never, **names: str) -> Self:
        """All columns, some with another name, written as `new="old"`: `.rename(customer="customer_id")`."""
        with Declaring("rename") as location:
            known = self.node.shape.columns
            refuse_mappings((*mappings, *names.values()))
            new_names = {check_column(old, known): new for new, old in names.items()}
            if not names or len(new_names) < len(names):
                raise DeclarationError("each column gets one new name; found " + (str(names) if names else "none"))
            if known is None:
                renamed = tuple(Named(new, quote(old)) for old, new in new_names.items())
                return self._select_columns(renamed, location, without=tuple(new_names))
            return self._select_columns(tuple(Named(new_names.get(old, old), quote(old)) for old in known), location)

    def union(self, *others: Self) -> Self:
        """The rows of all of them, duplicates included: `.union(other)`.

        All must have the same columns, in any order.
        """
        with Declaring("union") as location:
            for rows in others:
                if type(rows) is not type(self):
                    raise DeclarationError(
                        f"a {_kind_of(self)} can only be united with others of its kind; found {rows!r}",
                        hint="a table becomes a stream with .changes(), a stream a table with .latest(...)",
                    )
            if not others:
                raise DeclarationError("at least one other is needed; found none")
            nodes = (self.node, *(rows.node for rows in others))
            return type(self)(Union(nodes, shapes.united([node.shape for node in nodes]), location))

    def map(self, function: Callable[[Any], Any], schema: AnySchema | None = None) -> Self:
        """Any function from a Spark DataFrame to a DataFrame, given one batch of rows at a time: `.map(add_score)`.

        It must be stateless: what it makes of a row may depend only on that row, because rows come in batches of any
        size, and a row that is taken back passes through it again. With the schema of its result as DDL text
        (`"id bigint, score double"`), later expressions are checked when they are declared.
        """
        with Declaring("map") as location:
            if not callable(function):
                raise DeclarationError(f"a function from DataFrame to DataFrame is needed; found {function!r}")
            parsed = None if schema is None else parse_schema(schema)
            shape = shapes.mapped(self.node.shape, None if parsed is None else parsed.names)
            text = None if parsed is None else to_ddl(parsed)
            return type(self)(
                Map(self.node, function, code_fingerprint(function), text, self._shape_after_map(shape), location)
            )

    def agg(self, /, *unnamed: Never, **named: str) -> Table:
        """A table with a single row, of aggregates over all rows: `.agg(revenue="sum(amount)", orders="count(*)")`.

        It means the same as `.group_by().agg(...)`.
        """
        from penstock.flow.groups import Groups, aggregate

        with Declaring("agg") as location:
            return aggregate(Groups(self.node, ()), unnamed, named, location)

    def _shape_after_map(self, shape: Shape) -> Shape:
        """What remains of the shape after a map; a table keeps its key if the columns of the key still exist."""
        return shape

    def _select_columns(
        self, columns: tuple[Named, ...], location: Location, without: tuple[str, ...] | None = None
    ) -> Self:
        return type(self)(_select(self.node, columns, location, without))


def with_columns(node: Node, new: Sequence[Named], location: Location) -> Node:
    """A node with these columns added to those of its input, or replacing those of the same name."""
    known = node.shape.columns
    if known is None:
        return _select(node, tuple(new), location, without=tuple(column.name for column in new))
    replaced = {column.name: column for column in new}
    kept = [replaced.pop(name, Named(name, quote(name))) for name in known]
    return _select(node, (*kept, *replaced.values()), location, None)


def top(node: Node, count: int, by: str, per: Sequence[str], ties: Ties, location: Location) -> Top:
    """A node with the first rows of each group."""
    if type(count) is not int or count < 1:
        raise DeclarationError(f"the number of rows is a whole number of at least 1; found {count!r}")
    if ties not in ("break", "keep"):
        raise DeclarationError(f"ties is 'break' or 'keep'; found {ties!r}")
    columns = node.shape.columns
    groups = tuple(check_column(name, columns) for name in ([per] if isinstance(per, str) else per))
    check_columns(groups)
    check_free(groups, ("rank",), "top adds one")
    return Top(
        node, count, read_orders(by, columns), groups, ties, shapes.ranked(node.shape, count, groups, ties), location
    )


def check_rows(rows: object) -> Rows:
    """Refuse anything but a stream or a table, and return it."""
    if isinstance(rows, Rows):
        return rows
    raise DeclarationError(
        f"a stream or a table is needed; found {rows!r}",
        hint=f"end {rows!r} with .agg(...)" if hasattr(rows, "agg") else None,
    )


def _select(node: Node, columns: tuple[Named, ...], location: Location, without: tuple[str, ...] | None) -> Select:
    """A Select. With `without`, the columns of the input are not known, and all others are kept."""
    rest, dropped = without is not None, without or ()
    shape = shapes.selected(node.shape, columns, rest=rest, without=dropped)
    return Select(node, columns, shape, location, rest=rest, without=dropped)


def _check_named_expressions(named: Mapping[str, str], columns: Sequence[str] | None) -> tuple[Named, ...]:
    return tuple(Named(name, _check_named_expression(name, text, columns)) for name, text in named.items())


def _check_named_expression(name: str, text: str, columns: Sequence[str] | None) -> str:
    try:
        return check_expression(text, columns, instead=AGGREGATE_FIRST)
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error.message}", hint=error.hint) from None


def _kind_of(rows: Rows) -> str:
    return type(rows).__name__.lower()
