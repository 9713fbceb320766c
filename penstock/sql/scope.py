"""What a name means: the rows that a query can read, and columns, also those that a join had to rename.

In the text of an expression, `o.amount` becomes the name that the column has among the joined rows. Nothing else in it
is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from penstock.errors import DeclarationError
from penstock.flow.conditions import columns_in
from penstock.flow.names import quoted
from penstock.flow.reading import Reading, read
from penstock.flow.stream import Stream
from penstock.flow.table import Table
from penstock.log.ddl import closest
from penstock.sql.clauses import is_plain
from penstock.sql.refused import refuse_calls, refuse_subqueries
from penstock.sql.text import Span, name_of, said, starts


@dataclass(frozen=True)
class Part:
    """A table of FROM: its name there, and its columns, each with the name that it has among the joined rows.

    `columns` is None where they are not known before the app starts. Of columns in `lost` the value of this side is not
    kept: USING has the two of them as one.
    """

    alias: str | None
    columns: Mapping[str, str] | None
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reference:
    """A column of a part, said by the tokens from number `start` to before `end`."""

    start: int
    end: int
    part: int
    column: str


@dataclass(frozen=True)
class Scope:
    """The tables of FROM. `star` is what `*` means: names as the user knows them, and those of the joined rows."""

    parts: tuple[Part, ...]
    star: tuple[tuple[str, str], ...] | None

    def read(self, span: Span, what: str) -> Reading:
        """Read an expression, with refusals in the words of SQL."""
        refuse_subqueries(span, what)
        with span.declaring(what):
            return read(str(span))

    def text(self, span: Span, what: str, also: Collection[str] = ()) -> str:
        """The expression over the joined rows; names in `also` stay as they are."""
        found = {one.start: one for one in self.references(span, what, also)}
        inside = {number for one in found.values() for number in range(one.start + 1, one.end)}

        def changed(number: int) -> str | None:
            if number in inside:
                return ""
            one = found.get(number)
            return None if one is None else self._name(one, span, what)

        return said(span.tokens, changed)

    def column(self, span: Span, what: str) -> str | None:
        """The name among the joined rows, if the span is a plain column; None if it is anything else."""
        if not is_plain(span) or len(span) > 3:
            return None
        found = self.references(span, what)
        if len(found) != 1 or found[0].end != len(span):
            return None
        part = self.parts[found[0].part]
        self._refuse_lost(part, found[0], span, what)
        return (part.columns or {}).get(found[0].column, found[0].column)

    def shown(self, column: str) -> str:
        """What the user calls a column of the joined rows."""
        for part in self.parts:
            for name, actual in (part.columns or {}).items():
                if actual == column:
                    return name if part.alias is None or len(self.parts) == 1 else f"{part.alias}.{name}"
        return column

    def references(self, span: Span, what: str, also: Collection[str] = ()) -> list[Reference]:
        """The columns that are named; a name that is none of them is refused."""
        names = self.read(span, what).columns - {*also}
        found = (self._reference(span, number, names, what) for number in self.columns(span, what))
        return [one for one in found if one is not None]

    def columns(self, span: Span, what: str) -> list[int]:
        """The numbers of the tokens that are columns, or tables before the dot of a column."""
        reading = self.read(span, what)
        refuse_calls(span, what, reading)
        places = columns_in(reading.text)
        if places is None:
            raise span.refusal(
                what, f"it is not certain which words are columns in '{span}'", "put columns in backquotes: `order`"
            )
        begins = {start for start, _, _ in places}
        return [number for number, start in enumerate(starts(span.tokens)) if start in begins]

    def is_table(self, span: Span, number: int) -> bool:
        """Whether the token is the name of a table before the dot of a column."""
        dotted = span.keywords[number + 1 : number + 2] == (".",) and number + 2 < len(span)
        return dotted and name_of(span.tokens[number]) in {part.alias for part in self.parts}

    def _reference(self, span: Span, number: int, names: Collection[str], what: str) -> Reference | None:
        name = name_of(span.tokens[number])
        if name not in names:
            return None
        if self.is_table(span, number):
            part = next(at for at, one in enumerate(self.parts) if one.alias == name)
            return self._qualified(span, number, part, what)
        return self._unqualified(span, number, what)

    def _qualified(self, span: Span, number: int, part: int, what: str) -> Reference:
        column, columns = name_of(span.tokens[number + 2]), self.parts[part].columns
        if columns is not None and column not in columns:
            raise span.cut(number).refusal(
                what,
                f"'{self.parts[part].alias}' has no column '{column}'; it has {', '.join(columns)}",
                closest(column, list(columns)),
            )
        return Reference(number, number + 3, part, column)

    def _unqualified(self, span: Span, number: int, what: str) -> Reference | None:
        name = name_of(span.tokens[number])
        if any(part.columns is None for part in self.parts):
            # A part with columns that are not known may have it; the engine looks for it at the start.
            return None if len(self.parts) > 1 else Reference(number, number + 1, 0, name)
        among = [at for at, part in enumerate(self.parts) if name in (part.columns or ())]
        if not among:
            raise self._unknown(span.cut(number), name, what)
        kept = [at for at in among if name not in self.parts[at].lost] or among[:1]
        if len({(self.parts[at].columns or {})[name] for at in kept}) > 1:
            both = " or ".join(f"{self.parts[at].alias}.{name}" for at in kept)
            raise span.cut(number).refusal(what, f"'{name}' is a column of several tables", f"say which one: {both}")
        return Reference(number, number + 1, kept[0], name)

    def _unknown(self, span: Span, name: str, what: str) -> DeclarationError:
        known = [column for part in self.parts for column in part.columns or ()]
        tables = [part.alias for part in self.parts if part.alias is not None]
        if span.keywords[1:2] == (".",):
            hint = closest(name, [*tables, *known])
            listed = f"there are {', '.join(tables)}, and the columns {', '.join(dict.fromkeys(known))}"
            return span.refusal(what, f"there is no table and no column '{name}'; {listed}", hint)
        listed = ", ".join(dict.fromkeys(known))
        return span.refusal(what, f"there is no column '{name}'; there are {listed}", closest(name, known))

    def _name(self, one: Reference, span: Span, what: str) -> str | None:
        """What to write for a reference; None where the user's own text is right."""
        part = self.parts[one.part]
        self._refuse_lost(part, one, span, what)
        name = (part.columns or {}).get(one.column, one.column)
        return None if one.end == one.start + 1 and name == one.column else quoted(name)

    def _refuse_lost(self, part: Part, one: Reference, span: Span, what: str) -> None:
        if one.column in part.lost and one.end > one.start + 1:
            raise span.cut(one.start).refusal(
                what,
                f"behind USING there is one '{one.column}', and not that of '{part.alias}' alone",
                f"leave the table's name out; or join with ON, and both are there: ON ... = {part.alias}.{one.column}",
            )


# -- what a query can read by name ------------------------------------------------------------------------------------

Rows = Stream | Table


@dataclass(frozen=True)
class Ranked:
    """Rows with a rank that has no bound yet: the query around them must say up to which one they are kept."""

    rank: str
    span: Span
    bounded: Callable[[int], Rows]


Result = Stream | Table | Ranked
Known = Mapping[str, Result]


def named(name: str, known: Known, span: Span) -> Result:
    """The rows of this name."""
    if name not in known:
        there = ", ".join(known) or "none"
        raise span.refusal(
            "from", f"there is no topic, table or view '{name}'; there are {there}", closest(name, list(known))
        )
    return known[name]


def complete(result: Result) -> Rows:
    """Rows without a rank that still needs its bound."""
    if isinstance(result, Ranked):
        raise result.span.refusal(
            "select",
            f"a rank needs a bound, and '{result.rank}' has none",
            f"QUALIFY {result.rank} <= n here, or WHERE {result.rank} <= n in the query around it",
        )
    return result


def scope_of(rows: Rows, alias: str | None) -> Scope:
    """The scope of one table."""
    columns = rows.columns
    if columns is None:
        return Scope((Part(alias, None),), None)
    return Scope((Part(alias, {name: name for name in columns}),), tuple((name, name) for name in columns))


def name_like(wanted: str, taken: Collection[str]) -> str:
    """This name if it is not taken, else one that begins with it."""
    return unused_name(wanted, taken) if wanted.lower() in {name.lower() for name in taken} else wanted


def unused_name(base: str, taken: Collection[str]) -> str:
    """A name like this one that is not taken: columns that begin with '_' are Penstock's own, so these do not."""
    used = {name.lower() for name in taken}
    number = 1
    while f"{base}_{number}".lower() in used:
        number += 1
    return f"{base}_{number}"
