"""Passwords in URLs: where they come from, and how URLs are shown without them. Light to import.

A URL may name a variable of the environment instead of a secret: `postgresql://app:${SHOP_PASSWORD}@db/shop`. Programs
and the log keep the URL as it was written; `resolved_url` is called only where a connection is opened.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from penstock.errors import DeclarationError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MASK = "***"
_SHORTEST_SECRET = 4  # shorter ones are in words that mean something else
_SECRET_OPTIONS = frozenset({"password", "passwd", "pwd", "sslpassword", "token", "secret", "key"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//)?")
# One or several hosts with their ports, without a user part, up to the path.
_HOST = r"(?:\[[^\]/@]*\]|[^:,\[\]/@]*)(?::\d+)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/|$)")
# `password = 'my secret'` in a text such as libpq takes, which is no URL.
_KEYWORD = re.compile(rf"(?i)(?<!\w)((?:{'|'.join(_SECRET_OPTIONS)})\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&;']+)")


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
    """The URL as it may be shown: without a password, in the user part or among the options. The rest is unchanged.

    It takes any text, also what is no valid URL: what may be a password is masked there, too.
    """
    match = _SCHEME.match(url)
    if match is None:
        return _KEYWORD.sub(lambda found: f"{found[1]}{_MASK}", url)
    location, question_mark, options = url[match.end() :].partition("?")
    if not _HOSTS.match(location) and "@" not in location and "@" in options:
        return match[0] + _mask_user_part(url[match.end() :])  # a question mark in the password, which was not quoted
    options, hash_mark, fragment = options.partition("#")
    masked_options = "&".join(map(_mask_option, options.split("&")))
    return match[0] + _mask_user_part(location) + question_mark + masked_options + hash_mark + fragment


def _mask_user_part(location: str) -> str:
    """Mask what is between the first colon and the last @: passwords contain / and @ where nobody has quoted them."""
    user_part, at, host = location.rpartition("@")
    user, colon, password = user_part.partition(":")
    if not password or "/" in user or "@" in user or _HOSTS.match(location) or _VARIABLE.fullmatch(password):
        return location
    return f"{user}{colon}{_MASK}{at}{host}"


def _mask_option(option: str) -> str:
    name, equals, value = option.partition("=")
    is_secret = unquote_plus(name).strip().lower() in _SECRET_OPTIONS
    return f"{name}{equals}{_MASK}" if is_secret and value and not _VARIABLE.fullmatch(value) else option


def without_password(text: str, url: str) -> str:
    """A message without the password of this URL, should whoever wrote it have put it there."""
    try:
        password = urlsplit(resolved_url(url)).password
    except (ValueError, DeclarationError):
        return text
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, _MASK) if len(secret) >= _SHORTEST_SECRET else text
    return text
