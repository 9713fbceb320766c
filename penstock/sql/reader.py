"""Reads the tokens of a statement one after the other. Each method reads one thing, or refuses what stands there."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import DeclarationError
from penstock.flow.reading import Token
from penstock.sql.text import Span, closing, is_literal, is_name, name_of, outermost


class Reader:
    """Stands before the next token of a span. `what` is the statement or clause that refusals name."""

    def __init__(self, span: Span, what: str) -> None:
        self._span = span
        self._next = 0
        self.what = what

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._span)

    @property
    def here(self) -> Span:
        """All that is left."""
        return self._span.cut(self._next)

    def peek(self, ahead: int = 0) -> str:
        """The keyword or sign that many tokens ahead; nothing for quoted ones and behind the end."""
        at = self._next + ahead
        return self._span.keywords[at] if at < len(self._span) else ""

    def token(self, ahead: int = 0) -> Token | None:
        at = self._next + ahead
        return self._span.tokens[at] if at < len(self._span) else None

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

    def text(self, of: str) -> Token:
        """A quoted text."""
        token = self.token()
        if token is None or not is_literal(token):
            raise self.unexpected(of)
        self._next += 1
        return token

    def take(self, count: int = 1) -> Span:
        start, self._next = self._next, self._next + count
        return self._span.cut(start, self._next)

    def enclosed(self) -> Span:
        """What stands between the parenthesis here and the one that closes it."""
        if self.peek() != "(":
            raise self.unexpected("'('")
        closed = closing(self._span.tokens, self._next)
        if closed is None:
            raise self.refusal("a ')' is missing for this '('")
        inside = self._span.cut(self._next + 1, closed)
        self._next = closed + 1
        return inside

    def until(self, stops: Callable[[Span, int], bool]) -> Span:
        """Everything up to the first token outside of brackets at which the expression stops."""
        rest = self.here
        end = next((number for number in outermost(rest.tokens) if stops(rest, number)), len(rest))
        if end == 0:
            raise self.unexpected("an expression")
        return self.take(end)

    def end(self, hint: str | None = None) -> None:
        if not self.at_end:
            raise self.unexpected("the end", hint)

    def refusal(self, message: str, hint: str | None = None) -> DeclarationError:
        return self.here.refusal(self.what, message, hint)

    def unexpected(self, expected: str, hint: str | None = None) -> DeclarationError:
        token = self.token()
        found = "the end" if token is None else repr(token.raw)
        return self.refusal(f"expected {expected}; found {found}", hint)


# -- where an expression ends -----------------------------------------------------------------------------------------
# At a word that begins the next clause, or the next join; but only behind something complete. So a column may be called
# `late`: `WHERE late AND x` reads on.

# fmt: off
_CLAUSES = frozenset({
    "where", "group", "having", "qualify", "emit", "late", "keep", "within", "order", "limit", "offset", "window",
    "fetch", "cluster", "distribute", "sort", "union", "intersect", "except", "minus", "from", "lateral", "pivot",
    "unpivot", "tablesample", "for",
})
_JOINS = frozenset({"join", "inner", "left", "right", "full", "cross", "natural", "semi", "anti", "asof"})
# Behind these something must follow that belongs to the expression.
_OPERATORS = frozenset({
    "and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "case", "when", "then", "else",
    "distinct", "interval", "as", "div", "escape", "any", "some", "all", "by", "on", "select", "where", "having",
    "(", "[", ",", ".", "+", "-", "*", "/", "%", "=", "==", "<=>", "<", "<=", ">", ">=", "<>", "!=", "!", "||", "&",
    "|", "^", "~", "->", "=>", "::", ":", "collate", "similar", "to",
})
# fmt: on


def stops_expression(span: Span, number: int) -> bool:
    """Whether a condition, or a list of expressions, ends before the token of this number."""
    word = span.keywords[number]
    return word in _CLAUSES | _JOINS and _complete(span, number) and not _goes_on(span, number)


def stops_condition(span: Span, number: int) -> bool:
    """Whether the condition of a join ends there: also at a comma."""
    return span.keywords[number] == "," or stops_expression(span, number)


def stops_items(span: Span, number: int) -> bool:
    """Whether the SELECT list ends there."""
    word = span.keywords[number]
    if word in ("union", "intersect") or (word == "from" and number == 0):
        return True
    # `*` is complete in a list, and an operator elsewhere.
    return word == "from" and (_complete(span, number) or span.keywords[number - 1] == "*")


def _complete(span: Span, number: int) -> bool:
    if number == 0:
        return False
    before = span.keywords[number - 1]
    behind_dot = number > 1 and span.keywords[number - 2] == "."
    return before not in _OPERATORS or (behind_dot and before not in (".", "("))


def _goes_on(span: Span, number: int) -> bool:
    return span.keywords[number : number + 2] == ("within", "group")
