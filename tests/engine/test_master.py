"""The master that `--spark` names: whether somebody answers there."""

from __future__ import annotations

import socket

import pytest

from penstock.engine.master import local_address
from penstock.errors import DeclarationError, UnavailableError


@pytest.mark.parametrize("master", [None, "local", "local[4]", "local[*]", "local-cluster[2,1,1024]"])
def test_on_this_machine_it_is_the_loopback(master: str | None) -> None:
    assert local_address(master) == "127.0.0.1"


def test_other_clusters_find_out_themselves() -> None:
    assert local_address("yarn") is None
    assert local_address("k8s://https://head:6443") is None


def test_a_master_that_answers_says_how_it_reaches_us() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert local_address(f"spark://127.0.0.1:1,127.0.0.1:{port}") == "127.0.0.1"


def test_a_master_that_does_not_answer_is_refused_at_once() -> None:
    with pytest.raises(UnavailableError, match=r"no Spark master answers; 127\.0\.0\.1:1: connection refused"):
        local_address("spark://127.0.0.1:1")


@pytest.mark.parametrize("master", ["spark://head", "spark://", "head:7077", "http://head:7077", "lokal[2]", ""])
def test_what_is_no_master_is_refused_with_an_example(master: str) -> None:
    with pytest.raises(DeclarationError, match="this is not a Spark master") as refused:
        local_address(master)
    assert "spark://HOST:7077" in str(refused.value.hint)
