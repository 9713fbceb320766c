"""GROUP BY, aggregates and HAVING as `group_by(...).agg(...)`.

Expressions of the SELECT list, HAVING and QUALIFY are rewritten over the columns of the groups. Their aggregates become
columns of the result; those that are not in the list get a name that the user does not see. Expressions that the query
groups by become the keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.flow.expressions import aggregates_in, check_aggregate, outermost_aggregates
from penstock.flow.names import WINDOW_COLUMNS, quote
from penstock.flow.plan import Emit, Late
from penstock.flow.reading import Token, read, tokens_of
from penstock.sql.clauses import Select, SelectItem
from penstock.sql.scope import Rows, Scope, name_like, unused_name
from penstock.sql.substitute import fill_in_values, hide_aliases, replace_part, replace_ranges
from penstock.sql.text import Span, name_of, normalised, split_at_commas, without_parentheses
from penstock.sql.windows import WindowClause, as_window, window_column

ROW_COUNT = "row_count"


@dataclass(frozen=True)
class _SplitExpression:
    """An expression with hidden names for its aggregates, keys and aliases, and what each of these stands for."""

    text: str
    aggregates: dict[str, str]
    keys: dict[str, str]
    aliases: dict[str, str]


@dataclass
class Groups:
    """The groups of a SELECT while it is read; `rows` makes them. `written_keys` are the keys as the user wrote them.

    Reading an expression adds the aggregates in it to `aggregates`.
    """

    source: Rows
    scope: Scope
    select: Select
    keys: dict[str, str] = field(default_factory=dict)
    written_keys: dict[str, str] = field(default_factory=dict)
    aggregates: dict[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    window: WindowClause | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the groups have so far."""
        return (*self.keys, *(WINDOW_COLUMNS if self.window else ()), *self.aggregates)

    def with_aliases(self, aliases: Mapping[str, str]) -> Groups:
        """These same groups, for expressions that may use aliases of the SELECT list."""
        return replace(self, aliases=aliases)

    def add_item(self, item: SelectItem, name: str) -> str:
        """Add what an item of the list needs, and return it as an expression over the columns of the groups."""
        what, span = "select", item.expression
        split = self._split(span, what)
        if not split.aggregates or read(split.text).columns & {*WINDOW_COLUMNS}:
            return self._over_groups(span, split, what)
        aggregate = fill_in_values(span, what, split.text, {**split.aggregates, **split.keys})
        column = name_like(name, self.columns)
        with span.reading(what):
            self.aggregates[column] = check_aggregate(aggregate, self.source.columns, list(self.keys))
        return quote(column)

    def resolve(self, span: Span, what: str) -> str:
        """A condition or another expression over the columns of the groups."""
        return self._over_groups(span, self._split(span, what), what)

    def resolve_column(self, span: Span, what: str) -> str | None:
        """The column of the groups that the span is; None if it is anything else."""
        text = self.resolve(span, what)
        return next((name for name in self.columns if quote(name) == text), None)

    def rows(self) -> Rows:
        """The groups, with everything that was asked of them so far."""
        select, clauses = self.select, self.select.time_clauses
        if not self.aggregates:
            self.aggregates[name_like(ROW_COUNT, self.columns)] = "count(*)"
        with (select.group_by_span or select.span).declaring_here():
            if self.window is None:
                return self.source.group_by(**self.keys).agg(**self.aggregates)
            emit: Emit = "changes" if clauses.emit and clauses.emit.value == "changes" else "final"
            late: Late = "drop" if clauses.late and clauses.late.value == "drop" else "correct"
            keep = clauses.keep.value if clauses.keep else None
            windowed = self.source.window(self.window.window, emit=emit, late=late, keep=keep)
            return windowed.group_by(**self.keys).agg(**self.aggregates)

    def _split(self, span: Span, what: str) -> _SplitExpression:
        """An expression over the columns of the rows, in its parts."""
        if self.window is not None and span.keywords == (self.window.function,):
            raise span.refusal(what, "a window is asked for its parts", f"{span}.start, {span}.end")
        own, aliases = hide_aliases(_merge_window_columns(span, self.window), what, self.scope, self.aliases)
        also = {*(WINDOW_COLUMNS if self.window else ()), *aliases}
        text = self.scope.resolve(own, what, also)
        with span.reading(what):
            calls = outermost_aggregates(read(text))
            aggregates = {f"_aggregate_{number}": text[call.start : call.end] for number, call in enumerate(calls)}
            ranges = [(call.start, call.end, name) for call, name in zip(calls, aggregates, strict=True)]
            text = replace_ranges(text, ranges)
            keys: dict[str, str] = {}
            for key, expression in sorted(self.keys.items(), key=lambda item: -len(item[1])):
                if read(expression).columns:
                    name = f"_key_{len(keys)}"
                    text, keys[name] = replace_part(text, expression, name), quote(key)
            outside = read(text).columns - {*also, *aggregates, *keys}
        self._refuse_ungrouped(span, outside, what)
        return _SplitExpression(text, aggregates, keys, aliases)

    def _refuse_ungrouped(self, span: Span, outside: Collection[str], what: str) -> None:
        for column in sorted(outside):
            name, groups = self.scope.display_name(column), ", ".join(self.written_keys.values()) or "nothing"
            within = [self.written_keys[key] for key, text in self.keys.items() if column in read(text).columns]
            whole = f"; '{within[0]}' can be said as a whole, or by its name in the list" if within else ""
            raise span.refusal(
                what,
                f"column '{name}' is used outside of an aggregate, and the rows are grouped by {groups}",
                f"add it to GROUP BY, or choose one of its values: max({name}), any_value({name}){whole}",
            )

    def _over_groups(self, span: Span, split: _SplitExpression, what: str) -> str:
        """The text over the columns of the groups. Aggregates that are not among them yet are added."""
        named = {name: quote(self._aggregate_column(span, text, what)) for name, text in split.aggregates.items()}
        return fill_in_values(span, what, split.text, {**named, **split.keys, **split.aliases})

    def _aggregate_column(self, span: Span, text: str, what: str) -> str:
        """The column of an aggregate, which is added if there is none yet."""
        wanted = normalised(tokens_of(text))
        for name, known in self.aggregates.items():
            if normalised(tokens_of(known)) == wanted:
                return name
        name = unused_name("aggregate", self.columns)
        with span.reading(what):
            self.aggregates[name] = check_aggregate(text, self.source.columns, list(self.keys))
        return name


def make_groups(select: Select, source: Rows, scope: Scope) -> Groups:
    """The groups that GROUP BY says; without it, one group of all rows."""
    groups = Groups(source, scope, select)
    for span in select.group_by or ():
        if not span:
            raise span.refusal("group by", "an expression is missing between the commas")
        window = as_window(span, source, scope)
        if window is None:
            name, text = _read_key(_without_outer_parentheses(span), select.items, groups)
            groups.keys[name] = text
            groups.written_keys[name] = str(span)
        elif groups.window is not None:
            raise span.refusal(
                "group by", "there is one window in GROUP BY", "window the result again in a query around"
            )
        else:
            groups.window = window
    return groups


def has_aggregates(select: Select, scope: Scope) -> bool:
    """Whether the list or HAVING has an aggregate, which makes one group of all rows."""
    spans = [item.expression for item in select.items if not item.is_star]
    spans += [select.having] if select.having else []
    return any(call for span in spans for call in aggregates_in(scope.read_expression(span, "select")) if not call.over)


# -- keys -------------------------------------------------------------------------------------------------------------


def _read_key(span: Span, items: Sequence[SelectItem], groups: Groups) -> tuple[str, str]:
    """The name and the expression of a key: a column, an item of the list, or an expression of its own."""
    scope = groups.scope
    named_item = _named_item(span, items, scope)
    if named_item is not None:
        span = named_item.expression
    column = scope.resolve_column(span, "group by")
    if column is not None and (named_item is None or named_item.alias is None):
        return _key_name(column, quote(column), groups), quote(column)
    text = scope.resolve(span, "group by")
    item = named_item or next((item for item in items if not item.is_star and _is_same(item.expression, span)), None)
    return _key_name(None if item is None else item.name, text, groups), text


def _key_name(name: str | None, text: str, groups: Groups) -> str:
    """The name of a key, or an unused one if another key has that name."""
    taken = {column.lower() for column in groups.columns}
    if name is None or (name.lower() in taken and groups.keys.get(name) != text):
        return unused_name("group", groups.columns)
    return name


def _without_outer_parentheses(span: Span) -> Span:
    """The span without parentheses around a single expression."""
    inner = without_parentheses(span)
    return inner if len(split_at_commas(inner)) == 1 else span


def _named_item(span: Span, items: Sequence[SelectItem], scope: Scope) -> SelectItem | None:
    """The item that GROUP BY names by its number, or by its alias if no column has that name."""
    if len(span) != 1:
        return None
    if span.keywords[0].isdigit():
        number = int(span.keywords[0])
        if not 1 <= number <= len(items) or items[number - 1].is_star:
            raise span.refusal("group by", f"the list has no item {number} to group by; it has {len(items)}")
        return items[number - 1]
    name = name_of(span.tokens[0])
    if any(table.columns is None or name in table.columns for table in scope.tables):
        return None
    return next((item for item in items if item.alias == name), None)


def _is_same(item: Span, key: Span) -> bool:
    return normalised(without_parentheses(item).tokens) == normalised(key.tokens)


def _merge_window_columns(span: Span, window: WindowClause | None) -> Span:
    """The span with one token for `window.start` and the like."""
    function = None if window is None else window.function
    tokens: list[Token] = []
    number = 0
    while number < len(span):
        column = window_column(span, number, function)
        token = span.tokens[number]
        if column is None:
            tokens.append(token)
            number += 1
        else:
            tokens.append(Token(column, token.start, span.tokens[number + 2].end))
            number += 3
    return Span(span.text, tuple(tokens), span.start)
