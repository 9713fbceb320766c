"""Connections for queries, and what errors of PostgreSQL mean for whoever captures.

`SESSION_SETTINGS` decide how values look as text. They are the same for queries and for the replication stream, so that
a row has the same text in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.capture.postgres.types import SESSION_SETTINGS
from penstock.errors import DeclarationError, UnavailableError
from penstock.secrets import masked_url, resolved_url

Connection: TypeAlias = "psycopg.Connection[tuple[object, ...]]"

_SETTINGS = {
    **SESSION_SETTINGS,
    "lock_timeout": "0",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "default_transaction_read_only": "off",
}


def connection_string(url: str, *, replication: bool = False) -> str:
    """What libpq connects with. Options of the URL win, except those that decide how values look."""
    given = psycopg.conninfo.conninfo_to_dict(resolved_url(url))
    settings = " ".join(f"-c {name}={_escaped(value)}" for name, value in _SETTINGS.items())
    defaults = {"application_name": "penstock", "connect_timeout": "10", "keepalives_idle": "30"}
    options = f"{given.pop('options', None) or ''} {settings}".strip()
    fixed = {"options": options, "client_encoding": "UTF8", **({"replication": "database"} if replication else {})}
    return make_conninfo("", **{**defaults, **given, **fixed})


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def connect(url: str) -> Connection:
    """A connection in which every statement is a transaction. UnavailableError if the server does not let us in."""
    with server_errors(url):
        return psycopg.connect(connection_string(url), autocommit=True)


def cancel_statement(connection: Connection, seconds: float) -> None:
    """Ask the server to end what this connection waits for. One that cannot be asked has ended it, or will."""
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=seconds)


@contextmanager
def server_errors(url: str) -> Iterator[None]:
    """Translate errors of PostgreSQL: what retrying cannot mend is a DeclarationError, the rest an UnavailableError."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise DeclarationError(
            f"{masked_url(url)}: a right is missing: {first_line(error)}",
            hint="grant it; the guide 'How to capture PostgreSQL' lists what capturing needs",
        ) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.SyntaxError) as error:
        raise DeclarationError(f"{masked_url(url)}: {first_line(error)}") from error
    except psycopg.Error as error:
        raise UnavailableError(
            f"{masked_url(url)}: {first_line(error)}",
            hint="see that the server runs, and that the host, the user and the password are right",
        ) from error


def first_line(error: psycopg.Error) -> str:
    """What PostgreSQL says, without the statement, and without what it repeats for each address of the host."""
    primary = error.diag.message_primary
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return primary or (lines[0] if lines else type(error).__name__)
