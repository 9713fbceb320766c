"""Name resolution: which rows FROM can read, and which columns the names in an expression mean.

A join may have renamed a column. In the text of an expression, `o.amount` is replaced by the name that the column has
in the joined rows; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from penstock.errors import DeclarationError
from penstock.flow.conditions import columns_in
from penstock.flow.names import quote
from penstock.flow.reading import Reading, read
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.sql.text import Span, is_plain_name, name_of, to_sql, token_starts
from penstock.sql.unsupported import refuse_calls, refuse_subqueries
from penstock.suggest import closest


@dataclass(frozen=True)
class FromTable:
    """A table of FROM: its alias, and its columns, each with the name that it has in the joined rows.

    `columns` is None if they are not known before the app starts. Columns in `merged` are one column with that of the
    other side of USING, so that the value of this side alone is not available.
    """

    alias: str | None
    columns: Mapping[str, str] | None
    merged: frozenset[str] = frozenset()

    def joined_name(self, column: str) -> str:
        """The name that a column has in the joined rows."""
        return (self.columns or {}).get(column, column)


@dataclass(frozen=True)
class Reference:
    """A column of a table of FROM, written as the tokens from number `start` up to `end`."""

    start: int
    end: int
    table: int
    column: str

    @property
    def is_qualified(self) -> bool:
        return self.end > self.start + 1


@dataclass(frozen=True)
class Scope:
    """The tables of FROM. `star` is what `*` means: the user's names, each with the name in the joined rows."""

    tables: tuple[FromTable, ...]
    star: tuple[tuple[str, str], ...] | None

    def read_expression(self, span: Span, what: str) -> Reading:
        """Read an expression, with errors in the words of SQL."""
        refuse_subqueries(span, what)
        with span.reading(what):
            return read(str(span))

    def resolve(self, span: Span, what: str, also: Collection[str] = ()) -> str:
        """The text of the expression over the joined rows; names in `also` stay as they are."""
        references = {reference.start: reference for reference in self.references(span, what, also)}
        qualified = {
            number for reference in references.values() for number in range(reference.start + 1, reference.end)
        }

        def replacement(number: int) -> str | None:
            if number in qualified:
                return ""
            reference = references.get(number)
            return None if reference is None else self._replacement(reference, span, what)

        return to_sql(span.tokens, replacement)

    def resolve_column(self, span: Span, what: str) -> str | None:
        """The name in the joined rows, if the span is a plain column; None if it is anything else."""
        if not is_plain_name(span) or len(span) > 3:
            return None
        references = self.references(span, what)
        if len(references) != 1 or references[0].end != len(span):
            return None
        self._refuse_merged(references[0], span, what)
        return self.tables[references[0].table].joined_name(references[0].column)

    def display_name(self, column: str) -> str:
        """What the user calls a column of the joined rows."""
        for table in self.tables:
            for name, joined_name in (table.columns or {}).items():
                if joined_name == column:
                    return name if table.alias is None or len(self.tables) == 1 else f"{table.alias}.{name}"
        return column

    def references(self, span: Span, what: str, also: Collection[str] = ()) -> list[Reference]:
        """The columns that an expression names. A name that is not a column is refused."""
        names = self.read_expression(span, what).columns - {*also}
        found = (self._reference(span, number, names, what) for number in self.column_tokens(span, what))
        return [reference for reference in found if reference is not None]

    def column_tokens(self, span: Span, what: str) -> list[int]:
        """The numbers of the tokens that are columns, or tables before the dot of a column."""
        reading = self.read_expression(span, what)
        refuse_calls(span, what, reading)
        columns = columns_in(reading.text)
        if columns is None:
            raise span.refusal(
                what, f"it is not certain which words are columns in '{span}'", "put columns in backquotes: `order`"
            )
        starts = {start for start, _, _ in columns}
        return [number for number, start in enumerate(token_starts(span.tokens)) if start in starts]

    def is_qualifier(self, span: Span, number: int) -> bool:
        """Whether the token is the name of a table before the dot of a column."""
        dotted = span.keywords[number + 1 : number + 2] == (".",) and number + 2 < len(span)
        return dotted and name_of(span.tokens[number]) in {table.alias for table in self.tables}

    def _reference(self, span: Span, number: int, names: Collection[str], what: str) -> Reference | None:
        name = name_of(span.tokens[number])
        if name not in names:
            return None
        if self.is_qualifier(span, number):
            index = next(index for index, table in enumerate(self.tables) if table.alias == name)
            return self._qualified_reference(span, number, index, what)
        return self._unqualified_reference(span, number, what)

    def _qualified_reference(self, span: Span, number: int, index: int, what: str) -> Reference:
        table = self.tables[index]
        column, columns = name_of(span.tokens[number + 2]), table.columns
        if columns is not None and column not in columns:
            raise span.cut(number).refusal(
                what,
                f"'{table.alias}' has no column '{column}'; it has {', '.join(columns)}",
                closest(column, list(columns)),
            )
        return Reference(number, number + 3, index, column)

    def _unqualified_reference(self, span: Span, number: int, what: str) -> Reference | None:
        name = name_of(span.tokens[number])
        if any(table.columns is None for table in self.tables):
            # A table whose columns are not known may have it; the engine looks for it at the start.
            return None if len(self.tables) > 1 else Reference(number, number + 1, 0, name)
        candidates = [index for index, table in enumerate(self.tables) if name in (table.columns or ())]
        if not candidates:
            raise self._unknown_name(span.cut(number), name, what)
        kept = [index for index in candidates if name not in self.tables[index].merged] or candidates[:1]
        if len({self.tables[index].joined_name(name) for index in kept}) > 1:
            both = " or ".join(f"{self.tables[index].alias}.{name}" for index in kept)
            raise span.cut(number).refusal(what, f"'{name}' is a column of several tables", f"say which one: {both}")
        return Reference(number, number + 1, kept[0], name)

    def _unknown_name(self, span: Span, name: str, what: str) -> DeclarationError:
        columns = [column for table in self.tables for column in table.columns or ()]
        tables = [table.alias for table in self.tables if table.alias is not None]
        if span.keywords[1:2] == (".",):
            hint = closest(name, [*tables, *columns])
            known = f"there are {', '.join(tables)}, and the columns {', '.join(dict.fromkeys(columns))}"
            return span.refusal(what, f"there is no table and no column '{name}'; {known}", hint)
        known = ", ".join(dict.fromkeys(columns))
        return span.refusal(what, f"there is no column '{name}'; there are {known}", closest(name, columns))

    def _replacement(self, reference: Reference, span: Span, what: str) -> str | None:
        """What to write for a reference; None if the user's own text is right."""
        self._refuse_merged(reference, span, what)
        name = self.tables[reference.table].joined_name(reference.column)
        return None if not reference.is_qualified and name == reference.column else quote(name)

    def _refuse_merged(self, reference: Reference, span: Span, what: str) -> None:
        table, column = self.tables[reference.table], reference.column
        if column in table.merged and reference.is_qualified:
            raise span.cut(reference.start).refusal(
                what,
                f"after USING there is only one '{column}' and not that of '{table.alias}' alone",
                f"leave the table's name out; or join with ON, and both are there: ON ... = {table.alias}.{column}",
            )


def scope_of(rows: Rows, alias: str | None) -> Scope:
    """The scope of one table."""
    columns = rows.columns
    if columns is None:
        return Scope((FromTable(alias, None),), None)
    return Scope((FromTable(alias, {name: name for name in columns}),), tuple((name, name) for name in columns))


# -- what a query can read by name ------------------------------------------------------------------------------------

Rows = Stream | Table


@dataclass(frozen=True)
class UnboundedRank:
    """Rows with a rank that has no bound yet: the query around them must say up to which rank they are kept."""

    rank: str
    span: Span
    with_bound: Callable[[int], Rows]


Result = Stream | Table | UnboundedRank
KnownResults = Mapping[str, Result]


def find_result(name: str, known: KnownResults, span: Span) -> Result:
    """The topic, table, view or named query of this name."""
    if name not in known:
        names = ", ".join(known) or "none"
        raise span.refusal(
            "from", f"there is no topic, table or view '{name}'; there are {names}", closest(name, list(known))
        )
    return known[name]


def require_rows(result: Result) -> Rows:
    """The rows of a result. A rank without a bound is refused."""
    if isinstance(result, UnboundedRank):
        raise result.span.refusal(
            "select",
            f"a rank needs a bound, and '{result.rank}' has none",
            f"QUALIFY {result.rank} <= n here, or WHERE {result.rank} <= n in the query around it",
        )
    return result


# -- new names --------------------------------------------------------------------------------------------------------


def name_like(wanted: str, taken: Collection[str]) -> str:
    """This name if it is not taken, else an unused name that begins with it."""
    return unused_name(wanted, taken) if wanted.lower() in {name.lower() for name in taken} else wanted


def unused_name(base: str, taken: Collection[str]) -> str:
    """A name that begins with `base` and is not taken. It does not begin with '_', which is for hidden columns."""
    used = {name.lower() for name in taken}
    number = 1
    while f"{base}_{number}".lower() in used:
        number += 1
    return f"{base}_{number}"
