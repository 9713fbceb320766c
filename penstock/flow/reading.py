"""Reads an expression of Spark SQL: its columns, and its calls with their positions in the text.

sqlglot decides whether the text is an expression and which names in it are columns. Calls are found among the tokens,
so that they are pieces of the text as it was written: what sqlglot writes for a call may be another function in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError

from penstock.errors import DeclarationError
from penstock.flow.functions import closest_function, kind_of, wrong_number

_WORD = re.compile(r"[^\W\d]\w*")
# Words that can come before a parenthesis without being a call. Some are functions too, but none that has to be refused
# or split off.
_NO_CALLS = """
    all and as asc between both by case character collate dec desc distinct div else end escape for from group
    having ilike in interval is leading like not numeric on or order over placing regexp rlike select then trailing
    values varchar when where with
"""
_QUOTE_HINT = "put names that are SQL keywords in backquotes: `order`"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text, from `start` up to `end`; `word` is the piece in lower case, without backquotes."""

    raw: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.raw.strip("`").lower()

    @property
    def keyword(self) -> str:
        """The piece in lower case, as a keyword or an operator; empty if it is quoted in any way."""
        return "" if self.raw[-1:] in ("`", "'", '"') else self.raw.lower()


@dataclass(frozen=True, slots=True)
class Invocation:
    """A function call: from `start` up to `end` in the text, with the clauses that belong to it."""

    function: str
    start: int
    end: int
    arguments: tuple[str, ...]
    distinct: bool = False
    filter: str | None = None
    clause: str | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of an expression. `columns` has the first part of each name that is not a variable of a lambda."""

    text: str
    tokens: tuple[Token, ...]
    columns: frozenset[str]
    calls: tuple[Invocation, ...]


@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """Read an expression; a DeclarationError shows the position at which that fails."""
    tokens = tokens_of(text)
    tree = _parse(text, tokens)
    if isinstance(tree, exp.Command | exp.Block):
        raise _unreadable(text, 0, "it is not one expression")
    _refuse_what_rows_do_not_have(text, tree, tokens)
    columns = frozenset(column.parts[0].name for column in tree.find_all(exp.Column))
    return Reading(text, tokens, columns, tuple(_calls(text, tokens)))


def check_function(text: str, call: Invocation) -> None:
    """Refuse a call of a function that Spark does not have, or with a number of arguments that it does not take."""
    found = repr(text[call.start : call.end])
    if kind_of(call.function) is None:
        raise DeclarationError(
            f"Spark has no function '{call.function}'; found {found}", hint=closest_function(call.function)
        )
    if wrong := wrong_number(call.function, len(call.arguments)):
        raise DeclarationError(f"'{call.function}' has the wrong number of arguments: {wrong}; found {found}")


def top_level_parts(text: str) -> list[str]:
    """The parts of the text between commas that are outside of all brackets, stripped."""
    return _split_at_commas(text, tokens_of(text))


class _SparkTokens(Spark.Tokenizer):
    # Words such as EXPLAIN would make one token of everything that follows.
    COMMANDS = set()  # noqa: RUF012 - as sqlglot declares it


def tokenize(text: str) -> tuple[tuple[Token, ...], bool]:
    """The tokens of any text of Spark SQL, and whether it has comments. It raises sqlglot's TokenError."""
    found = _SparkTokens(dialect="spark").tokenize(text)
    # Some tokens are made up, such as the cast in `5L`: they have the position of another one.
    positions = sorted({(token.start, token.end + 1) for token in found})
    tokens = tuple(Token(text[start:end], start, end) for start, end in positions)
    return tokens, any(token.comments for token in found)


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of an expression, which has no comments and no empty arguments."""
    try:
        tokens, commented = tokenize(text)
    except TokenError:
        raise _unreadable(text, max(len(text) - 1, 0), "a quote is not closed") from None
    if commented:
        raise DeclarationError(f"an expression has no comments; found {text!r}", hint="write the comment in Python")
    for before, token in pairwise(tokens):
        if token.raw in (",", ")") and before.raw in (",", "(") and (before.raw, token.raw) != ("(", ")"):
            raise _unreadable(text, token.start, "something is missing before")
    return tokens


def _parse(text: str, tokens: Sequence[Token]) -> exp.Expr:
    if not tokens:
        raise DeclarationError(f"an expression is missing; found {text!r}")
    try:
        return sqlglot.parse_one(text, dialect="spark", into=exp.Condition)
    except ParseError as error:
        _refuse_wrong_calls(text, tokens)
        raise _unreadable(text, *_parse_mistake(text, error)) from None
    except (SqlglotError, RecursionError):
        raise _unreadable(text, 0, "it cannot be read") from None


def _refuse_wrong_calls(text: str, tokens: Sequence[Token]) -> None:
    """Explain a text that cannot be read by a call with the wrong number of arguments, or of an unknown function."""
    with suppress(KeyError):  # a parenthesis is missing
        for call in _calls(text, tokens):
            check_function(text, call)


def _parse_mistake(text: str, error: ParseError) -> tuple[int, str]:
    """The position at which sqlglot stopped, and what is wrong there."""
    first = error.errors[0] if error.errors else {}
    lines = text.splitlines(keepends=True)
    above = sum(map(len, lines[: first.get("line", 1) - 1]))
    at = max(0, above + first.get("col", 1) - len(first.get("highlight") or " "))
    description = str(first.get("description", ""))
    if "Expecting )" in description:
        return at, "a ')' is missing after"
    if "Expected END" in description:
        return at, "an 'end' is missing after"
    if "Required keyword" in description:
        return at, "something is missing at"
    return at, "unexpected"


def _unreadable(text: str, at: int, wrong: str) -> DeclarationError:
    """The error, with the line in question and a caret under the position."""
    begin = text.rfind("\n", 0, at) + 1
    line = text[begin:].partition("\n")[0]
    word = re.match(r"\w+|\S", text[at:])
    found = f"{wrong} {word.group()!r}" if word and " is not " not in wrong and "cannot" not in wrong else wrong
    caret = " " * (at - begin) + "^"
    return DeclarationError(
        f"Spark SQL cannot read this expression; {found} at character {at + 1}\n    {line}\n    {caret}",
        hint=_QUOTE_HINT if wrong == "unexpected" else None,
    )


def _refuse_what_rows_do_not_have(text: str, tree: exp.Expr, tokens: Sequence[Token]) -> None:
    if tree.find(exp.Query) or any(token.raw.lower() == "select" for token in tokens):
        raise DeclarationError(f"an expression has no subqueries; found {text!r}")
    if tree.find(exp.Placeholder, exp.Parameter) or any(token.raw in ("?", "@", "$") for token in tokens):
        raise DeclarationError(
            f"an expression has no parameters; found {text!r}", hint="put the value into the text with an f-string"
        )
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        _refuse_wrong_calls(text, tokens)
        raise DeclarationError(f"'*' is not allowed here; found {text!r}", hint="name the columns")


def _calls(text: str, tokens: Sequence[Token]) -> Iterator[Invocation]:
    closings = _closing_parentheses(tokens)
    for at, token in enumerate(tokens[:-1]):
        if tokens[at + 1].raw == "(" and _is_call(tokens, at):
            yield _call(text, tokens, at, closings)
        elif token.word == "over" and at and tokens[at - 1].raw == ")" and tokens[at + 1].raw != "(":
            yield Invocation("over", token.start, token.end, (), over=True)


def _is_call(tokens: Sequence[Token], at: int) -> bool:
    token, before = tokens[at], tokens[at - 1].word if at else ""
    if token.raw.startswith("`"):
        return True
    if not _WORD.fullmatch(token.raw) or token.word in _NO_CALLS.split():
        return False
    if token.word == "filter" and before in (")", "nulls"):
        return False
    return not (token.word in ("any", "some") and before in ("like", "ilike"))


def _call(text: str, tokens: Sequence[Token], at: int, closings: dict[int, int]) -> Invocation:
    closed = closings[at + 1]
    inside = tokens[at + 2 : closed]
    distinct = bool(inside) and inside[0].raw.lower() == "distinct"
    if distinct or (inside and inside[0].raw.lower() == "all"):
        inside = inside[1:]
    filtered, clause = None, None
    while clauses := _clause_end(tokens, closed + 1, closings):
        first, closed = closed + 1, clauses
        if tokens[first].word == "filter":
            filtered = text[tokens[first + 2].end : tokens[closed].start].strip()
        else:
            clause = text[tokens[first].start : tokens[closed].end]
    over = closed + 1 < len(tokens) and tokens[closed + 1].word == "over"
    start, end = tokens[at].start, tokens[closed].end
    return Invocation(
        _function_name(tokens, at), start, end, tuple(_split_at_commas(text, inside)), distinct, filtered, clause, over
    )


def _function_name(tokens: Sequence[Token], at: int) -> str:
    """The name of the function in lower case, with its qualifiers, if it has any."""
    name = tokens[at].word
    while at >= 2 and tokens[at - 1].raw == "." and tokens[at - 1].end == tokens[at].start:
        at -= 2
        name = f"{tokens[at].word}.{name}"
    return name


def _clause_end(tokens: Sequence[Token], at: int, closings: dict[int, int]) -> int | None:
    """The last token of the clause that begins at this token; None if no clause begins there."""
    words = [token.word for token in tokens[at : at + 3]]
    if words == ["within", "group", "("]:
        return closings[at + 2]
    if words[:2] == ["filter", "("]:
        return closings[at + 1]
    return at + 1 if words[:2] in (["ignore", "nulls"], ["respect", "nulls"]) else None


def _closing_parentheses(tokens: Sequence[Token]) -> dict[int, int]:
    """For each opening parenthesis the one that closes it. sqlglot has checked that they match."""
    opened: list[int] = []
    closings = {}
    for at, token in enumerate(tokens):
        if token.raw == "(":
            opened.append(at)
        elif token.raw == ")" and opened:
            closings[opened.pop()] = at
    return closings


def _split_at_commas(text: str, tokens: Sequence[Token]) -> list[str]:
    if not tokens:
        return []
    depth = 0
    cuts = [tokens[0].start]
    for token in tokens:
        depth += (token.raw in ("(", "[")) - (token.raw in (")", "]"))
        if token.raw == "," and depth == 0:
            cuts += [token.start, token.end]
    cuts.append(tokens[-1].end)
    return [text[start:end].strip() for start, end in zip(cuts[::2], cuts[1::2], strict=True)]
