"""A text of SQL in pieces: spans of its tokens, which know where they stand and what they say.

What is said is the user's own text. Only the space and the comments between two tokens become one space, so that
neither changes what is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from sqlglot.errors import TokenError

from penstock.errors import DeclarationError
from penstock.flow.place import Declaring, declared_at
from penstock.flow.plan import Place
from penstock.flow.reading import Token, pieces

_CLOSED_BY = {"(": ")", "[": "]", "case": "end"}
_WORD = re.compile(r"[^\W\d]\w*")
# Comments, texts and quoted names; any other character stands alone, also a quote that is not closed.
_PIECE = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|.""", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """SQL and where it stands: `place` is its first line, or the line of the Python program that it is given in."""

    content: str
    place: Place
    in_python: bool = False

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        try:
            tokens, _ = pieces(self.content)
        except TokenError:
            raise self._unclosed() from None
        return tuple(word for token in tokens for word in _words(token))

    def line(self, at: int) -> int:
        """The number of the line within this text, from 1 on."""
        return self.content.count("\n", 0, at) + 1

    @contextmanager
    def at(self, at: int) -> Iterator[None]:
        """What is declared in the block is declared at this character of the text."""
        line = self.line(at)
        if not self.in_python:
            place, detail = Place(self.place.file, self.place.line + line - 1), ""
        else:
            place, detail = self.place, f"line {line}" if "\n" in self.content.strip() else ""
        with declared_at(place, detail):
            yield

    def refusal(self, at: int, what: str, message: str, hint: str | None = None) -> DeclarationError:
        """The error to raise: where, in which clause, what is wrong."""
        try:
            with self.at(at), Declaring(what):
                raise DeclarationError(message, hint=hint)
        except DeclarationError as error:
            return error

    def _unclosed(self) -> DeclarationError:
        """A quote that is not closed is told with the line it begins in; a comment, with the last that begins."""
        quote = next((piece for piece in _PIECE.finditer(self.content) if piece.group() in ("'", '"', "`")), None)
        if quote is None:
            return self.refusal(max(self.content.rfind("/*"), 0), "sql", "a comment is not closed")
        return self.refusal(quote.start(), "sql", "a quote is not closed")


def _words(token: Token) -> Iterator[Token]:
    """The words of a token one by one, since `GROUP BY` may come as one; none of a hint for an optimizer."""
    if not token.keyword:
        yield token
    elif not token.raw.startswith("/*"):
        for word in re.finditer(r"\S+", token.raw):
            yield Token(word.group(), token.start + word.start(), token.start + word.end())


@dataclass(frozen=True)
class Span:
    """Tokens that follow each other in a text; `at` is where they begin, also if there are none."""

    text: Text
    tokens: tuple[Token, ...]
    at: int

    def __str__(self) -> str:
        return said(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        return tuple(token.keyword for token in self.tokens)

    def cut(self, start: int, end: int | None = None) -> Span:
        """The tokens from number `start` to before number `end`."""
        tokens = self.tokens[start:end]
        at = tokens[0].start if tokens else self.tokens[start - 1].end if 0 < start <= len(self.tokens) else self.at
        return Span(self.text, tokens, at)

    def refusal(self, what: str, message: str, hint: str | None = None) -> DeclarationError:
        return self.text.refusal(self.at, what, message, hint)

    @contextmanager
    def declaring(self, what: str) -> Iterator[None]:
        """Refusals of the block are told with the place of this span and what is being read."""
        with self.text.at(self.at), Declaring(what):
            yield


def said(tokens: Sequence[Token], changed: Callable[[int], str | None] = lambda _: None) -> str:
    """The tokens as text; `changed` says what stands instead of the token of a number, nothing for those left out."""
    text, end = "", tokens[0].start if tokens else 0
    for number, token in enumerate(tokens):
        instead = changed(number)
        piece = token.raw if instead is None else instead
        if piece:
            text += " " + piece if token.start > end and text else piece
        end = token.end
    return text


def starts(tokens: Sequence[Token]) -> list[int]:
    """Where each of the tokens begins in what `said` makes of them."""
    found: list[int] = []
    at, end = 0, tokens[0].start if tokens else 0
    for token in tokens:
        at += token.start > end and at > 0
        found.append(at)
        at, end = at + len(token.raw), token.end
    return found


def is_name(token: Token) -> bool:
    """Whether it can be the name of something: a word, or anything in backquotes."""
    return token.raw.startswith("`") or _WORD.fullmatch(token.raw) is not None


def name_of(token: Token) -> str:
    return token.raw[1:-1].replace("``", "`") if token.raw.startswith("`") else token.raw


def is_literal(token: Token) -> bool:
    """Whether it is a quoted text, of which backquotes make none."""
    return token.raw[:1] in ("'", '"')


def literal(token: Token) -> str:
    return token.raw[1:-1]


def outermost(tokens: Sequence[Token]) -> Iterator[int]:
    """The numbers of the tokens that stand in no brackets and in no CASE; brackets themselves are not among them."""
    return (number for number, opened in _depths(tokens) if not opened)


def left_open(span: Span) -> Span | None:
    """The last bracket or CASE that nothing closes, with what follows it."""
    # What one more token would stand in.
    *_, (_, opened) = _depths((*span.tokens, Token(",", span.at, span.at)))
    return span.cut(opened[-1]) if opened else None


def _depths(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each token with the brackets and CASEs that it stands in; those that open and close stand in themselves."""
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


def parts(span: Span, separator: str = ",") -> list[Span]:
    """What stands between the separators that are outside of all brackets."""
    cuts = [number for number in outermost(span.tokens) if span.keywords[number] == separator]
    return [span.cut(start, end) for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, None], strict=True)]


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """The number of the parenthesis that closes the one at `opening`; None if there is none."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += (tokens[number].raw == "(") - (tokens[number].raw == ")")
        if depth == 0:
            return number
    return None


def unwrapped(span: Span) -> Span:
    """The span without parentheses around all of it."""
    while len(span) > 2 and span.keywords[0] == "(" and closing(span.tokens, 0) == len(span) - 1:
        span = span.cut(1, -1)
    return span


def meaning(text: Sequence[Token]) -> tuple[str, ...]:
    """Tokens so that two texts compare as equal that differ in the case of words, or in backquotes, only."""
    return tuple(token.word if token.keyword or _WORD.fullmatch(token.word) else token.raw for token in text)
