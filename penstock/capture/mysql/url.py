"""MariaDB by URL: `mariadb://user:${PASSWORD}@host:3306/shop?ssl_ca=ca.pem`; the scheme may be `mysql` too.

Without a password in the URL it is that of MYSQL_PWD, or of the group `client` in the user's option file.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.capture.mysql.connection import Address
from penstock.capture.mysql.source import MySQLDatabase
from penstock.contracts import Database, SourceOptions, SourceTable
from penstock.errors import DeclarationError
from penstock.secrets import masked_url, resolved_url

_EXAMPLE = "as in mariadb://capture:${SHOP_PASSWORD}@db.example.com:3306/shop?ssl_ca=ca.pem"
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify", "unix_socket", "connect_timeout", "option_file")


def check_url(url: str) -> None:
    """Raise DeclarationError unless the URL names a server and a database. Connects to nothing."""
    _parse_url(url, url)


def open_database(url: str, tables: Sequence[SourceTable], options: SourceOptions) -> Database:
    """The database of a URL, to capture these tables. It connects when it is first asked for something."""
    check_url(url)
    # The variable of the password is read when a connection is opened, and is in nothing that is kept.
    return MySQLDatabase(masked_url(url), lambda: _parse_url(resolved_url(url), url), tables, options)


def _parse_url(url: str, shown: str) -> Address:
    where = f"database: {masked_url(shown)}"
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError as error:
        raise DeclarationError(f"{where} cannot be read as a URL", hint=_EXAMPLE) from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise DeclarationError(
            f"{where}: it has an option that is not known; found {', '.join(unknown)}",
            hint=f"the options are {', '.join(_OPTIONS)}",
        )
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise DeclarationError(f"{where}: it does not name a database; found {database!r}", hint=_EXAMPLE)
    if not parts.hostname and "unix_socket" not in options:
        raise DeclarationError(f"{where}: it does not name a server", hint=_EXAMPLE)
    timeout = options.get("connect_timeout", "10")
    if not timeout.isdigit() or not int(timeout):
        raise DeclarationError(f"{where}: connect_timeout is a whole number of seconds; found {timeout!r}")
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        shown=masked_url(shown),
        options=options,
    )
