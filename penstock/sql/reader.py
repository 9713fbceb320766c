"""Reads the tokens of a statement one after the other: words, names, durations, and expressions up to their end."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.errors import DeclarationError
from penstock.flow.reading import Token
from penstock.flow.windows import microseconds
from penstock.sql.text import (
    Span,
    closing_parenthesis,
    dotted_name,
    is_literal,
    is_name,
    literal_value,
    name_of,
    top_level,
)

_NUMBER = re.compile(r"\d+(\.\d+)?")
_DURATION_HINT = "write '10 seconds', INTERVAL 10 SECONDS or INTERVAL '10' SECOND"


class TokenReader:
    """Reads a span token by token. `what` is the statement or clause that errors name.

    Each method reads one thing, or refuses what it finds instead.
    """

    def __init__(self, span: Span, what: str) -> None:
        self._span = span
        self._next = 0
        self.what = what

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._span)

    @property
    def rest(self) -> Span:
        """Everything that has not been read."""
        return self._span.cut(self._next)

    def peek(self, ahead: int = 0) -> str:
        """The keyword or operator that many tokens ahead; empty for quoted tokens and after the end."""
        number = self._next + ahead
        return self._span.keywords[number] if number < len(self._span) else ""

    def token(self) -> Token | None:
        return None if self.at_end else self._span.tokens[self._next]

    def follows(self, *words: str) -> bool:
        return all(self.peek(number) == word for number, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these words, if they are the next ones."""
        if not self.follows(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str, hint: str | None = None) -> None:
        if not self.accept(*words):
            raise self.unexpected(" ".join(words).upper(), hint)

    def name(self, of: str) -> str:
        """The name of a column, a table or the like: one word, or anything in backquotes."""
        token = self.token()
        if token is None or not is_name(token):
            raise self.unexpected(of)
        self._next += 1
        return name_of(token)

    def dotted(self, of: str) -> Span:
        """A name that may have several parts."""
        start = self._next
        self.name(of)
        while self.accept("."):
            self.name(of)
        return self._span.cut(start, self._next)

    def dotted_name(self, of: str) -> str:
        return dotted_name(self.dotted(of))

    def take(self, count: int = 1) -> Span:
        start, self._next = self._next, self._next + count
        return self._span.cut(start, self._next)

    def in_parentheses(self) -> Span:
        """What is between the next token, which is a parenthesis, and the one that closes it."""
        if self.peek() != "(":
            raise self.unexpected("'('")
        closed = closing_parenthesis(self._span.tokens, self._next)
        if closed is None:
            raise self.refusal("a ')' is missing for this '('")
        inside = self._span.cut(self._next + 1, closed)
        self._next = closed + 1
        return inside

    def expression(self, ends: Callable[[Span, int], bool]) -> Span:
        """Everything up to the first token outside of brackets at which `ends` is true."""
        rest = self.rest
        end = next((number for number in top_level(rest.tokens) if ends(rest, number)), len(rest))
        if end == 0:
            raise self.unexpected("an expression")
        return self.take(end)

    def duration(self) -> str:
        """A length of time, in words: `'10 seconds'`, `INTERVAL 10 SECONDS`, `INTERVAL '10' SECOND`."""
        token = self.token()
        if token is not None and is_literal(token):
            self._next += 1
            return literal_value(token)
        if not self.accept("interval"):
            raise self.unexpected("a length of time", _DURATION_HINT)
        words = self._quantity()
        while words and (token := self.token()) is not None and _NUMBER.fullmatch(token.raw):
            words += self._quantity()
        if not words or self.peek() == "to":
            raise self.unexpected("a length of time after INTERVAL", _DURATION_HINT)
        return " ".join(words)

    def _quantity(self) -> list[str]:
        """A number and its unit; or a text, which may contain its units."""
        token = self.token()
        if token is None or not (is_literal(token) or _NUMBER.fullmatch(token.raw)):
            return []
        self.take()
        value = literal_value(token) if is_literal(token) else token.raw
        if not _NUMBER.fullmatch(value.strip()):
            return [value]
        unit = self.token()
        if unit is None or not unit.raw.isalpha():
            raise self.unexpected("a unit, such as SECONDS", _DURATION_HINT)
        self.take()
        return [value, unit.raw]

    def expect_end(self, hint: str | None = None) -> None:
        if not self.at_end:
            another = "end each statement with ';'" if self.peek() in ("create", "select") else None
            raise self.unexpected("the end", hint or another)

    def refusal(self, message: str, hint: str | None = None) -> DeclarationError:
        return self.rest.refusal(self.what, message, hint)

    def unexpected(self, expected: str, hint: str | None = None) -> DeclarationError:
        token = self.token()
        found = "the end" if token is None else repr(token.raw)
        return self.refusal(f"expected {expected}; found {found}", hint)


# -- durations --------------------------------------------------------------------------------------------------------


def duration_of(span: Span, what: str) -> str:
    """All of the span as a length of time, in words that Penstock knows."""
    reader = TokenReader(span, what)
    words = reader.duration()
    reader.expect_end(_DURATION_HINT)
    with span.reading(what):
        microseconds(words, "length")
    return words


def interval_microseconds(span: Span) -> int | None:
    """The length of an INTERVAL; None if the span is not one."""
    if not span or span.keywords[0] != "interval":
        return None
    try:
        return microseconds(duration_of(span, "interval"), "interval")
    except DeclarationError:
        return None


# -- where an expression ends -----------------------------------------------------------------------------------------
# At a word that begins the next clause or the next join, but only after something complete. So a column may be called
# `late`: `WHERE late AND x` continues.

# fmt: off
_CLAUSES = frozenset({
    "where", "group", "having", "qualify", "emit", "late", "keep", "within", "order", "limit", "offset", "window",
    "fetch", "cluster", "distribute", "sort", "union", "intersect", "except", "minus", "from", "lateral", "pivot",
    "unpivot", "tablesample", "for",
})
_JOINS = frozenset({"join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti", "asof"})
# After these the expression must continue.
_OPERATORS = frozenset({
    "and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "case", "when", "then", "else",
    "distinct", "interval", "as", "div", "escape", "any", "some", "all", "by", "on", "select", "where", "having",
    "(", "[", ",", ".", "+", "-", "*", "/", "%", "=", "==", "<=>", "<", "<=", ">", ">=", "<>", "!=", "!", "||", "&",
    "|", "^", "~", "->", "=>", "::", ":", "collate", "similar", "to",
})
# fmt: on


def ends_expression(span: Span, number: int) -> bool:
    """Whether a condition, or a list of expressions, ends before the token of this number."""
    word = span.keywords[number]
    return word in _CLAUSES | _JOINS and _is_complete(span, number) and not _is_within_group(span, number)


def ends_condition(span: Span, number: int) -> bool:
    """Whether the condition of a join ends there: also at a comma."""
    return span.keywords[number] == "," or ends_expression(span, number)


def ends_select_list(span: Span, number: int) -> bool:
    """Whether the SELECT list ends there."""
    word = span.keywords[number]
    if word in ("union", "intersect") or (word == "from" and number == 0):
        return True
    # `*` is complete in a list, and an operator elsewhere.
    return word == "from" and (_is_complete(span, number) or span.keywords[number - 1] == "*")


def _is_complete(span: Span, number: int) -> bool:
    if number == 0:
        return False
    before = span.keywords[number - 1]
    after_dot = number > 1 and span.keywords[number - 2] == "."
    return before not in _OPERATORS or (after_dot and before not in (".", "("))


def _is_within_group(span: Span, number: int) -> bool:
    return span.keywords[number : number + 2] == ("within", "group")
