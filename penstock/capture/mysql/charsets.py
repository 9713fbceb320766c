"""Character sets of the server: which one a collation has, and what the bytes of the small ones mean.

The server itself says what each byte means, so that a text of the binary log and of a query are the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.capture.mysql.connection import Session

_BYTES = bytes(range(256)).hex()


@dataclass(frozen=True, slots=True)
class Charsets:
    """`names` by the number of the collation; `characters` of the sets with one byte per character, by name."""

    names: Mapping[int, str]
    characters: Mapping[str, tuple[str, ...]]

    def characters_of(self, charset: str) -> tuple[str, ...]:
        return self.characters.get(charset, ())


def load_charsets(session: Session) -> Charsets:
    table = "COLLATION_CHARACTER_SET_APPLICABILITY"
    newer = session.value(
        "SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema' "
        "AND TABLE_NAME = %s AND COLUMN_NAME = 'ID'",
        [table],
    )
    rows = session.rows(
        f"SELECT ID, CHARACTER_SET_NAME FROM information_schema.{table if newer else 'COLLATIONS'} "
        "WHERE ID IS NOT NULL AND CHARACTER_SET_NAME IS NOT NULL"
    )
    single = session.rows(
        "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS "
        "WHERE MAXLEN = 1 AND CHARACTER_SET_NAME NOT IN ('binary', 'ascii')"
    )
    names = [str(name) for (name,) in single]
    columns = ", ".join(f"HEX(CONVERT(_{name} X'{_BYTES}' USING utf32))" for name in names)
    texts = session.rows(f"SELECT {columns}")[0] if names else ()
    return Charsets(
        {int(str(number)): str(name) for number, name in rows},
        {name: tuple(bytes.fromhex(str(text)).decode("utf-32-be")) for name, text in zip(names, texts, strict=True)},
    )
