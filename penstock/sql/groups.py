"""GROUP BY, aggregates and HAVING as `group_by(...).agg(...)`.

What the SELECT list, HAVING and QUALIFY say is said of the groups: aggregates become columns of the result, those that
the list does not have under a name that the user does not see, and expressions that are grouped by become their keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.flow.expressions import aggregates_in, check_aggregate
from penstock.flow.names import WINDOW_COLUMNS, quoted
from penstock.flow.plan import Emit, Late
from penstock.flow.reading import Token, read, tokens_of
from penstock.sql.aliases import outermost_aggregates, with_aliases, with_values
from penstock.sql.clauses import Item, Select
from penstock.sql.scope import Rows, Scope, name_like, unused_name
from penstock.sql.substitute import cut_out, replaced
from penstock.sql.text import Span, meaning, name_of, parts, unwrapped
from penstock.sql.windows import WindowClause, window_column, window_in

ROW_COUNT = "row_count"


@dataclass(frozen=True)
class _Said:
    """An expression with names for its parts: its aggregates, what is grouped by, and the names of the list."""

    text: str
    aggregates: dict[str, str]
    keys: dict[str, str]
    aliases: dict[str, str]


@dataclass
class Groups:
    """The groups of a SELECT while it is read; `rows` makes them. `shown` are the keys as the user said them."""

    source: Rows
    scope: Scope
    select: Select
    keys: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    aggregates: dict[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    window: WindowClause | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the groups have so far."""
        return (*self.keys, *(WINDOW_COLUMNS if self.window else ()), *self.aggregates)

    def named(self, aliases: Mapping[str, str]) -> Groups:
        """These same groups, for expressions that may use the names of the list."""
        return replace(self, aliases=aliases)

    def output(self, item: Item, name: str) -> str:
        """What an item of the list is, as an expression over the columns of the groups."""
        what, span = "select", item.expression
        said = self._said(span, what)
        if not said.aggregates or read(said.text).columns & {*WINDOW_COLUMNS}:
            return self._of_groups(span, said, what)
        inside = with_values(span, what, said.text, {**said.aggregates, **said.keys})
        own = name_like(name, self.columns)
        with span.declaring(what):
            self.aggregates[own] = check_aggregate(inside, self.source.columns, list(self.keys))
        return quoted(own)

    def text(self, span: Span, what: str) -> str:
        """A condition or another expression behind the groups."""
        return self._of_groups(span, self._said(span, what), what)

    def column(self, span: Span, what: str) -> str | None:
        """The column of the groups that it is, if it is one."""
        text = self.text(span, what)
        return next((name for name in self.columns if quoted(name) == text), None)

    def rows(self) -> Rows:
        """The groups, with everything that was asked of them so far."""
        select = self.select
        at = select.group_at or select.span
        trailing = select.trailing
        if not self.aggregates:
            self.aggregates[name_like(ROW_COUNT, self.columns)] = "count(*)"
        with select.span.text.at(at.at):
            if self.window is None:
                return self.source.group_by(**self.keys).agg(**self.aggregates)
            emit: Emit = "changes" if trailing.emit and trailing.emit[0] == "changes" else "final"
            late: Late = "drop" if trailing.late and trailing.late[0] == "drop" else "correct"
            keep = trailing.keep[0] if trailing.keep else None
            windowed = self.source.window(self.window.window, emit=emit, late=late, keep=keep)
            return windowed.group_by(**self.keys).agg(**self.aggregates)

    def _said(self, span: Span, what: str) -> _Said:
        """The expression over the columns of the rows, in its parts."""
        if self.window is not None and span.keywords == (self.window.function,):
            raise span.refusal(what, "a window is asked for its parts", f"{span}.start, {span}.end")
        own, aliases = with_aliases(_without_dots(span, self.window), what, self.scope, self.aliases)
        also = {*(WINDOW_COLUMNS if self.window else ()), *aliases}
        text = self.scope.text(own, what, also)
        with span.declaring(what):
            calls = outermost_aggregates(text)
            aggregates = {f"_aggregate_{number}": text[call.start : call.end] for number, call in enumerate(calls)}
            places = [(call.start, call.end, name) for call, name in zip(calls, aggregates, strict=True)]
            text = replaced(text, places)
            keys: dict[str, str] = {}
            for key, expression in sorted(self.keys.items(), key=lambda one: -len(one[1])):
                if read(expression).columns:
                    name = f"_key_{len(keys)}"
                    text, keys[name] = cut_out(text, expression, name), quoted(key)
            outside = read(text).columns - {*also, *aggregates, *keys}
        self._check_beside(span, outside, what)
        return _Said(text, aggregates, keys, aliases)

    def _check_beside(self, span: Span, outside: Collection[str], what: str) -> None:
        for name in sorted(outside):
            shown, groups = self.scope.shown(name), ", ".join(self.shown.values()) or "nothing"
            within = [self.shown[key] for key, text in self.keys.items() if name in read(text).columns]
            whole = f"; '{within[0]}' can be said as a whole, or by its name in the list" if within else ""
            raise span.refusal(
                what,
                f"column '{shown}' stands outside of an aggregate, and it is grouped by {groups}",
                f"add it to GROUP BY, or choose one of its values: max({shown}), any_value({shown}){whole}",
            )

    def _of_groups(self, span: Span, said: _Said, what: str) -> str:
        """The text over the columns of the groups: aggregates by their names, computed beside the others if need be."""
        named = {name: quoted(self._aggregate(span, text, what)) for name, text in said.aggregates.items()}
        return with_values(span, what, said.text, {**named, **said.keys, **said.aliases})

    def _aggregate(self, span: Span, text: str, what: str) -> str:
        """The name of an aggregate, which becomes a column if it is none yet."""
        wanted = meaning(tokens_of(text))
        for name, known in self.aggregates.items():
            if meaning(tokens_of(known)) == wanted:
                return name
        name = unused_name("aggregate", self.columns)
        with span.declaring(what):
            self.aggregates[name] = check_aggregate(text, self.source.columns, list(self.keys))
        return name


def groups_of(select: Select, source: Rows, scope: Scope) -> Groups:
    """The groups that GROUP BY says; one of all rows without it."""
    groups = Groups(source, scope, select)
    for span in select.group or ():
        if not span:
            raise span.refusal("group by", "an expression is missing between the commas")
        window = window_in(span, source, scope)
        if window is None:
            name, text = _key(_bare(span), select.items, groups)
            groups.keys[name] = text
            groups.shown[name] = str(span)
        elif groups.window is not None:
            raise span.refusal(
                "group by", "there is one window in GROUP BY", "window the result again in a query around"
            )
        else:
            groups.window = window
    return groups


def has_aggregates(select: Select, scope: Scope) -> bool:
    """Whether the list or HAVING has an aggregate, which makes one group of all rows."""
    spans = [item.expression for item in select.items if not item.star]
    spans += [select.having] if select.having else []
    return any(call for span in spans for call in aggregates_in(scope.read(span, "select")) if not call.over)


# -- keys -------------------------------------------------------------------------------------------------------------


def _key(span: Span, items: Sequence[Item], groups: Groups) -> tuple[str, str]:
    """The name and the expression of a key: a column, an item of the list, or an expression of its own."""
    scope = groups.scope
    chosen = _item_of(span, items, scope)
    if chosen is not None:
        span = chosen.expression
    column = scope.column(span, "group by")
    if column is not None and (chosen is None or chosen.alias is None):
        return _free(column, quoted(column), groups), quoted(column)
    text = scope.text(span, "group by")
    same = chosen or next((item for item in items if not item.star and _same(item.expression, span)), None)
    return _free(None if same is None else same.name, text, groups), text


def _free(name: str | None, text: str, groups: Groups) -> str:
    """The name of a key, or one like it where another key has it already."""
    taken = {column.lower() for column in groups.columns}
    if name is None or (name.lower() in taken and groups.keys.get(name) != text):
        return unused_name("group", groups.columns)
    return name


def _bare(span: Span) -> Span:
    """The span without parentheses around one expression."""
    inner = unwrapped(span)
    return inner if len(parts(inner)) == 1 else span


def _item_of(span: Span, items: Sequence[Item], scope: Scope) -> Item | None:
    """The item that GROUP BY names by its number, or by its alias where no column has that name."""
    if len(span) != 1:
        return None
    if span.keywords[0].isdigit():
        number = int(span.keywords[0])
        if not 1 <= number <= len(items) or items[number - 1].star:
            raise span.refusal("group by", f"the list has no item {number} to group by; it has {len(items)}")
        return items[number - 1]
    name = name_of(span.tokens[0])
    if any(part.columns is None or name in part.columns for part in scope.parts):
        return None
    return next((item for item in items if item.alias == name), None)


def _same(one: Span, other: Span) -> bool:
    return meaning(unwrapped(one).tokens) == meaning(other.tokens)


# -- texts ------------------------------------------------------------------------------------------------------------


def _without_dots(span: Span, window: WindowClause | None) -> Span:
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
    return Span(span.text, tuple(tokens), span.at)
