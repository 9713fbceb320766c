"""What SQL needs of an app: to declare in it, and to find what was declared, also in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.flow.plan import Plan
from penstock.flow.stream import Stream
from penstock.flow.table import Table


class Declarations(Protocol):
    """An app. Its methods are the Python verbs, with their checks; `named` has every topic, table and view."""

    @property
    def plan(self) -> Plan: ...

    @property
    def named(self) -> Mapping[str, Stream | Table]: ...

    @property
    def topic(self) -> Callable[..., Stream]: ...

    @property
    def table(self) -> Callable[..., Table]: ...

    def view(self, name: str, rows: Stream | Table) -> None: ...

    @property
    def sink(self) -> Callable[..., None]: ...
