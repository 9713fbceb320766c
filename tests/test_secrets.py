"""Passwords in URLs: where they come from, and that no form of a URL shows them."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeclarationError
from penstock.secrets import masked_url, resolved_url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shop.db",
        "sqlite:///shop.db",
        "sqlite:////data/shop.db",
        "sqlite:///a%20folder/shop@home:1.db?mode=ro",
        "file:orders.csv",
        "file:///data/orders:1@x.jsonl?format=json",
        "postgresql://localhost/shop",
        "postgresql:///shop?host=/run/postgresql",
        "postgresql://app@db:5432/shop?sslmode=require&options=-c%20x%3D1",
        "postgresql://app:@db/shop",
        "postgresql://app:${SHOP_PASSWORD}@db/shop",
        "postgresql://db/shop?user=app&password=${SHOP_PASSWORD}",
        "postgresql://db/shop?password=&sslkey=client.key",
        "postgresql://db1:5432,db2:5433/shop?target_session_attrs=read-write",
        "postgresql://[2001:db8::1]:5432/shop",
        "postgresql://[::1/shop",
        "mysql://root@127.0.0.1:3306/shop@home#x",
        "host=db user=app dbname=shop",
    ],
)
def test_a_url_without_a_secret_is_unchanged(url: str) -> None:
    assert masked_url(url) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:s3cret@db/shop", "postgresql://app:***@db/shop"),
        ("mysql://app:s3cret@db:3306/shop?charset=utf8mb4", "mysql://app:***@db:3306/shop?charset=utf8mb4"),
        ("postgresql://:s3cret@db/shop", "postgresql://:***@db/shop"),
        ("postgresql://app:s%2Fcr%40t@db/a%20b", "postgresql://app:***@db/a%20b"),
        ("postgresql://app:12345@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:${A}s3cret@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:s3cret@[2001:db8::1]:5432/shop", "postgresql://app:***@[2001:db8::1]:5432/shop"),
        ("postgresql://app:s3cret@a:5432,b:5433/shop", "postgresql://app:***@a:5432,b:5433/shop"),
        ("postgresql://db/shop?user=a&password=s3cret#x", "postgresql://db/shop?user=a&password=***#x"),
        ("postgresql://db/shop?pass%77ord=s3cret&x=%2F", "postgresql://db/shop?pass%77ord=***&x=%2F"),
        ("mysql://db/shop?Password=s3cret&ssl=1", "mysql://db/shop?Password=***&ssl=1"),
        ("nats:host?token=s3cret", "nats:host?token=***"),
        ("host=db password=s3cret dbname=shop", "host=db password=*** dbname=shop"),
        ("host=db password = 's3 cr\\'et' dbname=shop", "host=db password = *** dbname=shop"),
    ],
)
def test_only_the_secret_is_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cret@[::1/shop",
        "postgresql://app:s3cret@db:port/shop",
        "postgresql://app:/s3cret@db/shop",
        "postgresql://app:x/s3cret@db/shop",
        "postgresql://app:x?s3cret@db/shop",
        "postgresql://app:x#s3cret@db/shop",
        "postgresql://app:x@s3cret@db/shop",
        "postgresql:app:s3cret@db/shop",
        "post gres://db/?password=s3cret",
        "password='s3cret",
    ],
)
def test_what_cannot_be_read_shows_no_secret_either(url: str) -> None:
    assert "s3cret" not in masked_url(url)


@given(password=st.text(min_size=1, max_size=20), option=st.sampled_from(["password", "token", "sslpassword"]))
def test_a_quoted_password_is_never_shown(password: str, option: str) -> None:
    try:
        quoted = quote(password, safe="")
    except UnicodeEncodeError:
        return  # half of a pair, which is no character
    assert masked_url(f"mysql://app:{quoted}@db/x?a=1") == "mysql://app:***@db/x?a=1"
    assert masked_url(f"mysql://db/x?a=1&{option}={quoted}&b=2") == f"mysql://db/x?a=1&{option}=***&b=2"


def test_variables_are_replaced_and_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_USER", "app")
    monkeypatch.setenv("SHOP_PASSWORD", "a/b@c:d?e#f %")
    url = resolved_url("postgresql://${SHOP_USER}:${SHOP_PASSWORD}@db/shop")
    parts = urlsplit(url)
    assert (parts.username, parts.hostname, parts.path) == ("app", "db", "/shop")
    assert unquote(parts.password or "") == "a/b@c:d?e#f %"


def test_a_url_without_variables_is_not_changed() -> None:
    assert resolved_url("sqlite:////data/$HOME/{x}.db") == "sqlite:////data/$HOME/{x}.db"


def test_a_variable_that_is_not_set_is_named_and_the_password_is_not_shown() -> None:
    with pytest.raises(DeclarationError, match="the variable SURELY_NOT_SET is not set") as error:
        resolved_url("postgresql://app:s3cret@${SURELY_NOT_SET}/shop")
    assert "s3cret" not in str(error.value)
    assert "export SURELY_NOT_SET" in (error.value.hint or "")
