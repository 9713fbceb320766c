"""Passwords in URLs: where they come from, and how URLs are shown without them. Light to import.

A URL may name a variable of the environment instead of a secret: `postgresql://app:${SHOP_PASSWORD}@db/shop`. Programs
and the log keep the URL as it was written; `resolved_url` is called only where a connection is opened.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from penstock.errors import DeclarationError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MASK = "***"
_SHORTEST_SECRET = 4  # shorter ones are in words that mean something else
_SECRET_OPTIONS = frozenset({"password", "passwd", "pwd", "sslpassword", "token", "secret", "key"})


def resolved_url(url: str) -> str:
    """The URL with `${NAME}` replaced by the variable of that name, quoted as URLs need it."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise DeclarationError(
                f"{masked_url(url)}: the variable {name} is not set in the environment",
                hint=f"set it before you start: export {name}=...",
            )
        return quote(os.environ[name], safe="")

    return _VARIABLE.sub(value, url)


def masked_url(url: str) -> str:
    """The URL as it may be shown: without a password, in the user part or among the options."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return _MASK  # it cannot be read, so nobody knows where the password is
    location = parts.netloc
    if password and not _VARIABLE.fullmatch(password):
        user, _, host = location.rpartition("@")
        location = f"{user.split(':', 1)[0]}:{_MASK}@{host}"
    options = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(name, _MASK if name.lower() in _SECRET_OPTIONS and value else value) for name, value in options]
    query = parts.query if shown == options else urlencode(shown, safe="*/")
    return urlunsplit(parts._replace(netloc=location, query=query))


def without_password(text: str, url: str) -> str:
    """A message without the password of this URL, should whoever wrote it have put it there."""
    try:
        password = urlsplit(resolved_url(url)).password
    except (ValueError, DeclarationError):
        return text
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, _MASK) if len(secret) >= _SHORTEST_SECRET else text
    return text
