"""A text of SQL in pieces: spans of its tokens, which know their position and their text.

The text of a span is what the user wrote. Only space and comments between two tokens become a single space, so that
they never change what is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from sqlglot.errors import TokenError

from penstock.errors import DeclarationError
from penstock.flow.location import Declaring, override_location
from penstock.flow.plan import Location
from penstock.flow.reading import Token, tokenize

_CLOSED_BY = {"(": ")", "[": "]", "case": "end"}
_WORD = re.compile(r"[^\W\d]\w*")
# Comments, texts and quoted names; any other character is a piece of its own, also a quote that is not closed.
_PIECE = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|.""", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """SQL and where it is from: `location` is its first line, or the line of the Python program that contains it."""

    content: str
    location: Location
    in_python: bool = False

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        try:
            tokens, _ = tokenize(self.content)
        except TokenError:
            raise self._unclosed_quote() from None
        return tuple(word for token in tokens for word in _words_of(token))

    def line(self, position: int) -> int:
        """The number of the line within this text, starting at 1."""
        return self.content.count("\n", 0, position) + 1

    @contextmanager
    def declaring_at(self, position: int) -> Iterator[None]:
        """Everything that the block declares has the location of this character of the text."""
        line = self.line(position)
        if not self.in_python:
            location, detail = Location(self.location.file, self.location.line + line - 1), ""
        else:
            location, detail = self.location, f"line {line}" if "\n" in self.content.strip() else ""
        with override_location(location, detail):
            yield

    def refusal(self, position: int, what: str, message: str, hint: str | None = None) -> DeclarationError:
        """The error to raise: its location, the clause, and what is wrong."""
        try:
            with self.declaring_at(position), Declaring(what):
                raise DeclarationError(message, hint=hint)
        except DeclarationError as error:
            return error

    def _unclosed_quote(self) -> DeclarationError:
        """The error names the line in which the quote begins; for a comment, the last line in which one begins."""
        quote = next((piece for piece in _PIECE.finditer(self.content) if piece.group() in ("'", '"', "`")), None)
        if quote is None:
            return self.refusal(max(self.content.rfind("/*"), 0), "sql", "a comment is not closed")
        return self.refusal(quote.start(), "sql", "a quote is not closed")


def _words_of(token: Token) -> Iterator[Token]:
    """Each word as a token of its own, since `GROUP BY` may be one token; optimizer hints are left out."""
    if not token.keyword:
        yield token
    elif not token.raw.startswith("/*"):
        for word in re.finditer(r"\S+", token.raw):
            yield Token(word.group(), token.start + word.start(), token.start + word.end())


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of a text; `start` is where they begin, even if there are none."""

    text: Text
    tokens: tuple[Token, ...]
    start: int

    def __str__(self) -> str:
        return to_sql(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        return tuple(token.keyword for token in self.tokens)

    def cut(self, start: int, end: int | None = None) -> Span:
        """The tokens from number `start` up to number `end`."""
        tokens = self.tokens[start:end]
        if tokens:
            position = tokens[0].start
        else:
            position = self.tokens[start - 1].end if 0 < start <= len(self.tokens) else self.start
        return Span(self.text, tokens, position)

    def refusal(self, what: str, message: str, hint: str | None = None) -> DeclarationError:
        return self.text.refusal(self.start, what, message, hint)

    @contextmanager
    def declaring_here(self) -> Iterator[None]:
        """Everything that the block declares has the location of this span."""
        with self.text.declaring_at(self.start):
            yield

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Errors in the block are raised with the location of this span and with what is being read."""
        with self.declaring_here(), Declaring(what):
            yield


def to_sql(tokens: Sequence[Token], replacement: Callable[[int], str | None] = lambda _: None) -> str:
    """The tokens as text. `replacement` gives the text to write for the token of a number; "" leaves it out."""
    text, end = "", tokens[0].start if tokens else 0
    for number, token in enumerate(tokens):
        new = replacement(number)
        piece = token.raw if new is None else new
        if piece:
            text += " " + piece if token.start > end and text else piece
        end = token.end
    return text


def token_starts(tokens: Sequence[Token]) -> list[int]:
    """Where each token begins in the text that `to_sql` makes of them."""
    starts: list[int] = []
    position, end = 0, tokens[0].start if tokens else 0
    for token in tokens:
        position += token.start > end and position > 0
        starts.append(position)
        position, end = position + len(token.raw), token.end
    return starts


def is_name(token: Token) -> bool:
    """Whether it can be the name of something: a word, or anything in backquotes."""
    return token.raw.startswith("`") or _WORD.fullmatch(token.raw) is not None


def is_plain_name(span: Span) -> bool:
    """Whether it is nothing but a name, with or without dots."""
    return len(span) % 2 == 1 and all(
        is_name(token) if number % 2 == 0 else token.raw == "." for number, token in enumerate(span.tokens)
    )


def name_of(token: Token) -> str:
    return token.raw[1:-1].replace("``", "`") if token.raw.startswith("`") else token.raw


def dotted_name(span: Span) -> str:
    """The name that a span is, without backquotes and space."""
    return str(span).replace("`", "").replace(" ", "")


def is_literal(token: Token) -> bool:
    """Whether it is a text in quotes. Backquotes are for names."""
    return token.raw[:1] in ("'", '"')


def literal_value(token: Token) -> str:
    return token.raw[1:-1]


def top_level(tokens: Sequence[Token]) -> Iterator[int]:
    """The numbers of the tokens outside of all brackets and of CASE; the brackets themselves are not included."""
    return (number for number, opened in _nesting(tokens) if not opened)


def unclosed_bracket(span: Span) -> Span | None:
    """The last bracket or CASE that is not closed, with everything after it."""
    # Where one more token would be.
    *_, (_, opened) = _nesting((*span.tokens, Token(",", span.start, span.start)))
    return span.cut(opened[-1]) if opened else None


def _nesting(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each token with the brackets and CASEs around it; those that open and close are inside of themselves."""
    opened: tuple[int, ...] = ()
    for number, token in enumerate(tokens):
        word = token.keyword if not number or tokens[number - 1].raw != "." else ""
        if word in _CLOSED_BY:
            opened = (*opened, number)
            yield number, opened
        elif opened and word == _CLOSED_BY[tokens[opened[-1]].keyword]:
            yield number, opened
            opened = opened[:-1]
        else:
            yield number, opened


def split_at_commas(span: Span) -> list[Span]:
    """The parts between commas that are outside of all brackets."""
    cuts = [number for number in top_level(span.tokens) if span.keywords[number] == ","]
    return [span.cut(start, end) for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, None], strict=True)]


def closing_parenthesis(tokens: Sequence[Token], opening: int) -> int | None:
    """The number of the parenthesis that closes the one at `opening`; None if nothing closes it."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += (tokens[number].raw == "(") - (tokens[number].raw == ")")
        if depth == 0:
            return number
    return None


def without_parentheses(span: Span) -> Span:
    """The span without parentheses around all of it."""
    while len(span) > 2 and span.keywords[0] == "(" and closing_parenthesis(span.tokens, 0) == len(span) - 1:
        span = span.cut(1, -1)
    return span


def normalised(tokens: Sequence[Token]) -> tuple[str, ...]:
    """Tokens for comparison: equal for texts that differ only in the case of words or in backquotes."""
    return tuple(token.word if token.keyword or _WORD.fullmatch(token.word) else token.raw for token in tokens)
