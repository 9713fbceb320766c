"""What a statement of the binary log does to tables. Pure: it reads no more of the text than is needed.

Where it is not sure that a change leaves all rows as they are, it says that the table must be copied again: that is
always right, only slower.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Effect: TypeAlias = "Literal['harmless', 'truncated', 'rewritten', 'removed', 'renamed', 'column gone']"

_TOKEN = re.compile(
    r"""/\*[MV]?!\d*\s* | \*/ | /\*.*?\*/ | --[ \t][^\n]* | \#[^\n]*   # comments; what is in executable ones counts
      | `(?:[^`]|``)*` | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
      | [\w$@]+ | [^\s\w]""",
    re.VERBOSE | re.DOTALL,
)
_ROW_STATEMENTS = frozenset(["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "SELECT", "DO", "WITH"])
# In a definition of a column, these may give existing rows a value.
_MAY_FILL = frozenset(["DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "TIMESTAMP", "SERIAL", "PRIMARY", "ROW"])
_HARMLESS_FIRST = frozenset(
    ["COMMENT", "AUTO_INCREMENT", "ALGORITHM", "LOCK", "FORCE", "STATS_PERSISTENT", "KEY_BLOCK_SIZE"]
)
_KEYS = frozenset(["INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "CONSTRAINT", "FOREIGN", "CHECK", "PERIOD"])
_INDEXES = frozenset(["INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"])


@dataclass(frozen=True, slots=True)
class TableChange:
    """What happens to a table. `column` has gone: it was dropped or renamed."""

    database: str
    table: str
    effect: Effect
    column: str = ""


def statement_kind(statement: str) -> str:
    """The first word of a statement, in capitals."""
    tokens = _tokens(statement)
    return tokens[0].upper() if tokens else ""


def writes_rows(statement: str) -> bool:
    """Whether it changes rows by itself: the session does not write row images into the log."""
    return statement_kind(statement) in _ROW_STATEMENTS


def mentions(statement: str, table: str) -> bool:
    return any(_name(token).lower() == table.lower() for token in _tokens(statement))


def table_changes(statement: str, database: str) -> list[TableChange]:
    """What a statement does to each table that it names, in its order. Empty for what concerns no table.

    ValueError if it ends where a name must be: no statement that a server has run does.
    """
    try:
        return _table_changes(_tokens(statement), database)
    except IndexError as error:
        raise ValueError(f"the statement cannot be read: {statement:.200}") from error


def _table_changes(tokens: list[str], database: str) -> list[TableChange]:
    words = [token.upper() for token in tokens]
    if "TEMPORARY" in words[:4]:
        return []
    if words[:1] == ["TRUNCATE"]:
        start = 2 if words[1:2] == ["TABLE"] else 1
        return [TableChange(*_table(tokens, start, database)[:2], "truncated")]
    if words[:1] == ["DROP"]:
        return _dropped(tokens, words, database)
    if words[:1] == ["RENAME"] and words[1:2] in (["TABLE"], ["TABLES"]):
        return _renamed(tokens, words, database)
    if words[:1] == ["CREATE"] and "TABLE" in words[1:4]:
        start = _skip(words, words.index("TABLE") + 1, "IF", "NOT", "EXISTS")
        effect: Effect = "removed" if "REPLACE" in words[:3] else "harmless"
        return [TableChange(*_table(tokens, start, database)[:2], effect)]
    return _altered(tokens, words, database) if words[:1] == ["ALTER"] else []


def _tokens(statement: str) -> list[str]:
    found = _TOKEN.findall(statement)
    return [token for token in found if not token.startswith(("/*", "*/", "-- ", "--\t", "#"))]


def _name(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token.strip('"')


def _table(tokens: list[str], at: int, database: str) -> tuple[str, str, int]:
    """The database and the name of a table, and where it ends."""
    name = _name(tokens[at])
    if tokens[at + 1 : at + 2] == ["."]:
        return name, _name(tokens[at + 2]), at + 3
    return database, name, at + 1


def _skip(words: list[str], at: int, *optional: str) -> int:
    while at < len(words) and words[at] in optional:
        at += 1
    return at


def _dropped(tokens: list[str], words: list[str], database: str) -> list[TableChange]:
    if words[1:2] in (["DATABASE"], ["SCHEMA"]):
        return [TableChange(_name(tokens[_skip(words, 2, "IF", "EXISTS")]), "*", "removed")]
    if words[1:2] not in (["TABLE"], ["TABLES"]):
        return []
    changes, at = [], _skip(words, 2, "IF", "EXISTS")
    while at < len(tokens):
        schema, table, at = _table(tokens, at, database)
        changes.append(TableChange(schema, table, "removed"))
        if tokens[at : at + 1] != [","]:
            break
        at += 1
    return changes


def _renamed(tokens: list[str], words: list[str], database: str) -> list[TableChange]:
    changes, at = [], _skip(words, 2, "IF", "EXISTS")
    while at < len(tokens):
        schema, table, at = _table(tokens, at, database)
        changes.append(TableChange(schema, table, "renamed"))
        while at < len(tokens) and words[at] != "TO":
            at += 1
        schema, table, at = _table(tokens, at + 1, database)
        changes.append(TableChange(schema, table, "renamed"))
        if tokens[at : at + 1] != [","]:
            break
        at += 1
    return changes


def _altered(tokens: list[str], words: list[str], database: str) -> list[TableChange]:
    at = _skip(words, 1, "ONLINE", "IGNORE")
    if words[at : at + 1] != ["TABLE"]:
        return []
    at = _skip(words, at + 1, "IF", "EXISTS")
    schema, table, at = _table(tokens, at, database)
    if words[at : at + 1] in (["WAIT"], ["NOWAIT"]):
        at += 2 if words[at] == "WAIT" else 1
    changes = []
    for clause in _clauses(tokens[at:]):
        effect, column = _clause_effect(clause)
        changes.append(TableChange(schema, table, effect, column))
        if clause[0].upper() == "EXCHANGE":
            after = [token.upper() for token in clause].index("TABLE") + 1
            changes.append(TableChange(*_table(clause, after, database)[:2], "rewritten"))
    return changes


def _clauses(tokens: list[str]) -> list[list[str]]:
    """What is between commas outside of parentheses."""
    clauses: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token == "," and not depth:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return [clause for clause in clauses if clause]


def _clause_effect(clause: list[str]) -> tuple[Effect, str]:
    words = [token.upper() for token in clause]
    second = words[1] if len(words) > 1 else ""
    if words[0] == "ENGINE":
        return ("harmless" if "INNODB" in words else "rewritten"), ""
    if words[0] in _HARMLESS_FIRST:
        return "harmless", ""
    if words[0] == "ADD":
        # A foreign key that changes rows by itself is found, and refused, when the table is looked at again.
        changes_rows = {"CASCADE", "SET"} & set(words)
        is_key = second == "PRIMARY" or "PRIMARY" in words[2:4]
        fills_column = second not in _KEYS and _MAY_FILL & set(words)
        filling = changes_rows or is_key or fills_column
        return ("rewritten" if filling else "harmless"), ""
    if words[0] == "DROP":
        if second in _INDEXES:
            return "harmless", ""
        if second in ("PRIMARY", "PARTITION", "SYSTEM", "PERIOD"):
            return "rewritten", ""
        return "column gone", _name(clause[_skip(words, 1, "COLUMN", "IF", "EXISTS")])
    if words[0] == "RENAME":
        if second == "COLUMN":
            return "column gone", _name(clause[_skip(words, 2, "IF", "EXISTS")])
        return ("harmless" if second in ("INDEX", "KEY") else "renamed"), ""
    if words[0] == "CHANGE":
        at = _skip(words, 1, "COLUMN", "IF", "EXISTS")
        old, new = _name(clause[at]), _name(clause[at + 1])
        return ("rewritten", "") if old.lower() == new.lower() else ("column gone", old)
    if words[0] == "ALTER" and ("DEFAULT" in words or "INDEX" in words or "KEY" in words):
        return "harmless", ""
    return "rewritten", ""
