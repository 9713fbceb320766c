"""What streams and tables have in common: verbs that look at one row at a time, and `top`.

Each verb checks what it was given, builds a node of the plan, and returns a new stream or table that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from penstock.errors import DeclarationError
from penstock.flow import shapes
from penstock.flow.code import code_fingerprint
from penstock.flow.expressions import check_column, check_expression
from penstock.flow.names import check_columns, check_free, quoted
from penstock.flow.place import Declaring
from penstock.flow.plan import Map, Named, Node, Place, Select, Shape, Ties, Top, Union, Where
from penstock.flow.top import orders
from penstock.log.schema import parse_schema, to_ddl

AGGREGATE_FIRST = "aggregate with group_by(...).agg(...) first, and use the result"


@dataclass(frozen=True, slots=True, repr=False)
class Rows:
    """A stream or a table: a node of the plan, on which verbs build others. Nothing is computed here."""

    node: Node

    def __repr__(self) -> str:
        shape = self.node.shape
        columns = "columns known at the start" if shape.columns is None else ", ".join(shape.columns)
        return f"<{type(self).__name__}: {columns}>"

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns; None behind a `map` without a schema, where they are known when the app starts."""
        return self.node.shape.columns

    def where(self, condition: str) -> Self:
        """Only the rows for which the condition is true: `.where("amount > 100 and country = 'DE'")`."""
        with Declaring("where") as place:
            shape = self.node.shape
            text = check_expression(condition, shape.columns, instead=AGGREGATE_FIRST)
            return type(self)(Where(self.node, text, shape, place))

    def select(self, /, *columns: str, **named: str) -> Self:
        """Only these columns: names of columns, then new ones as `name="expression"`.

        `.select("order_id", total="price * quantity")`. A window needs the column with the event time, and a table
        keeps its key only while the columns of the key are among those selected.
        """
        with Declaring("select") as place:
            known = self.node.shape.columns
            kept = [Named(name, quoted(name)) for name in (check_column(each, known) for each in columns)]
            chosen = (*kept, *_expressions(named, known))
            if not chosen:
                raise DeclarationError("at least one column is needed; found none")
            return self._selecting(chosen, place)

    def with_columns(self, /, **named: str) -> Self:
        """All columns and these new ones: `.with_columns(total="price * quantity")`.

        A name that is there already is replaced, in its place. The expressions see the columns as they were before.
        """
        with Declaring("with_columns") as place:
            if not named:
                raise DeclarationError("at least one column is needed; found none")
            return type(self)(with_columns(self.node, _expressions(named, self.node.shape.columns), place))

    def drop(self, *names: str) -> Self:
        """All columns but these: `.drop("note")`."""
        with Declaring("drop") as place:
            known = self.node.shape.columns
            gone = tuple(check_column(name, known) for name in names)
            if not gone:
                raise DeclarationError("at least one column is needed; found none")
            if known is None:
                return self._selecting((), place, without=gone)
            left = tuple(Named(name, quoted(name)) for name in known if name not in gone)
            if not left:
                raise DeclarationError("no column would be left")
            return self._selecting(left, place)

    def rename(self, /, **names: str) -> Self:
        """All columns, some with another name, written as `new="old"`: `.rename(customer="customer_id")`."""
        with Declaring("rename") as place:
            known = self.node.shape.columns
            new_names = {check_column(old, known): new for new, old in names.items()}
            if not names or len(new_names) < len(names):
                raise DeclarationError("each column gets one new name; found " + (str(names) if names else "none"))
            if known is None:
                renamed = tuple(Named(new, quoted(old)) for old, new in new_names.items())
                return self._selecting(renamed, place, without=tuple(new_names))
            return self._selecting(tuple(Named(new_names.get(old, old), quoted(old)) for old in known), place)

    def union(self, *others: Self) -> Self:
        """The rows of all of them, also where they are equal. All have the same columns, in any order."""
        with Declaring("union") as place:
            for other in others:
                if type(other) is not type(self):
                    raise DeclarationError(
                        f"a {_kind(self)} is united with others of its kind; found {other!r}",
                        hint="a table becomes a stream with .changes(), a stream a table with .latest(...)",
                    )
            if not others:
                raise DeclarationError("at least one other is needed; found none")
            nodes = (self.node, *(other.node for other in others))
            return type(self)(Union(nodes, shapes.united([node.shape for node in nodes]), place))

    def map(self, function: Callable[[Any], Any], schema: str | None = None) -> Self:
        """Any function from a Spark DataFrame to a DataFrame, given one batch of rows at a time.

        It must be stateless: what it makes of a row may depend on that row only, because rows come in batches of any
        size, and a row that is taken back goes through it again. With the schema of its result as DDL text
        (`"id bigint, score double"`), expressions behind it are checked when they are declared.
        """
        with Declaring("map") as place:
            if not callable(function):
                raise DeclarationError(f"a function from DataFrame to DataFrame is needed; found {function!r}")
            parsed = None if schema is None else parse_schema(schema)
            shape = shapes.mapped(self.node.shape, None if parsed is None else parsed.names)
            text = None if parsed is None else to_ddl(parsed)
            return type(self)(Map(self.node, function, code_fingerprint(function), text, self._behind(shape), place))

    def _behind(self, shape: Shape) -> Shape:
        """What a map leaves of the shape; a table keeps its key, if its columns are still there."""
        return shape

    def _selecting(self, columns: tuple[Named, ...], place: Place, without: tuple[str, ...] | None = None) -> Self:
        return type(self)(_select(self.node, columns, place, without))


def with_columns(node: Node, new: Sequence[Named], place: Place) -> Node:
    """A node with these columns added to its input's, or put in the place of those that have their names."""
    known = node.shape.columns
    if known is None:
        return _select(node, tuple(new), place, without=tuple(column.name for column in new))
    replaced = {column.name: column for column in new}
    kept = [replaced.pop(name, Named(name, quoted(name))) for name in known]
    return _select(node, (*kept, *replaced.values()), place, None)


def top(node: Node, count: int, by: str, per: Sequence[str], ties: Ties, place: Place) -> Top:
    """A node with the first rows of each group."""
    if type(count) is not int or count < 1:
        raise DeclarationError(f"the number of rows is a whole number of at least 1; found {count!r}")
    if ties not in ("break", "keep"):
        raise DeclarationError(f"ties is 'break' or 'keep'; found {ties!r}")
    columns = node.shape.columns
    groups = tuple(check_column(name, columns) for name in ([per] if isinstance(per, str) else per))
    check_columns(groups)
    check_free(groups, ("rank",), "top adds one")
    return Top(node, count, orders(by, columns), groups, ties, shapes.ranked(node.shape, count, groups, ties), place)


def other_rows(other: object) -> Rows:
    """What a stream or table is joined with."""
    if isinstance(other, Rows):
        return other
    raise DeclarationError(
        f"a stream or a table is needed; found {other!r}",
        hint="end group_by(...) with .agg(...)" if hasattr(other, "agg") else None,
    )


def _select(node: Node, columns: tuple[Named, ...], place: Place, without: tuple[str, ...] | None) -> Select:
    """A Select; `without` is given where the input's columns are not known, and all others are kept."""
    rest, gone = without is not None, without or ()
    shape = shapes.selected(node.shape, columns, rest=rest, without=gone)
    return Select(node, columns, shape, place, rest=rest, without=gone)


def _expressions(named: Mapping[str, str], columns: Sequence[str] | None) -> tuple[Named, ...]:
    return tuple(Named(name, _expression(name, text, columns)) for name, text in named.items())


def _expression(name: str, text: str, columns: Sequence[str] | None) -> str:
    try:
        return check_expression(text, columns, instead=AGGREGATE_FIRST)
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error.message}", hint=error.hint) from None


def _kind(rows: Rows) -> str:
    return type(rows).__name__.lower()
