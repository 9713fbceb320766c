"""The master that `--spark` names: whether it is one, and whether somebody answers there. Loads no Spark."""

from __future__ import annotations

import re
import socket
from contextlib import suppress

from penstock.errors import DeclarationError, UnavailableError

ANSWER_SECONDS = 5.0
_LOCAL = re.compile(r"local(-cluster)?(\[[^\]]*\])?")
_OTHER = re.compile(r"yarn|k8s://.+")
_ADDRESS = re.compile(r"(?P<host>[^:,/\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")


def local_address(master: str | None) -> str | None:
    """The address under which Spark's processes reach this one; None if Spark is to find out.

    A standalone cluster (`spark://HOST:PORT`, several separated by commas) is asked whether it answers.
    """
    if master is None or _LOCAL.fullmatch(master):
        return "127.0.0.1"
    if _OTHER.fullmatch(master):
        return None
    reasons = []
    for host, port in _masters(master):
        try:
            return _address_towards(host, port)
        except OSError as error:
            reasons.append(f"{host}:{port}: {_describe(error)}")
    raise UnavailableError(
        f"--spark {master}: no Spark master answers; {', '.join(reasons)}",
        hint="check the URL, that the master runs, and that this machine may connect to it; without --spark, the app "
        "runs on this machine",
    )


def _masters(master: str) -> list[tuple[str, int]]:
    scheme, _, rest = master.partition("://")
    addresses = [_ADDRESS.fullmatch(part) for part in rest.split(",")]
    if scheme == "spark" and all(addresses):
        return [(match["host"].strip("[]"), int(match["port"])) for match in addresses if match]
    raise DeclarationError(
        f"--spark {master}: this is not a Spark master",
        hint="a standalone cluster is spark://HOST:7077; others are yarn and k8s://...; local[4] is this machine with "
        "4 cores",
    )


def _address_towards(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as connection:
        address: str = connection.getsockname()[0]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return address


def _describe(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name has no address"
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:.0f} seconds"
    return (error.strerror or str(error)).lower()
