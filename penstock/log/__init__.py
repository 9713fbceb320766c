"""The log: where facts are kept. An embedded, partitioned, typed, append-only log in plain files, with no server.

The main path of a write: Log -> Topic.append -> Topic.requests -> PartitionWriter.append -> stage -> publish.
The main path of a read: Log -> Topic.reader -> Reader.poll -> FrameReader.read -> read_batches.

The names below are loaded when they are first used: who needs one module need not load all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.ddl import closest
    from penstock.log.description import TopicSettings
    from penstock.log.groups import Delivery, Group, Lag, Member, Move
    from penstock.log.holds import HeldRange, Hold, ReadPosition
    from penstock.log.kept import Kept
    from penstock.log.log import Log
    from penstock.log.log_writer import LogWriter
    from penstock.log.pending_write import Appended
    from penstock.log.producer import Producer
    from penstock.log.reader import Batch, Reader
    from penstock.log.retention import Expired
    from penstock.log.rewrite import Rewritten
    from penstock.log.topic import Topic
    from penstock.log.transaction import Transaction
    from penstock.log.verify import Statistics, Verified

_HOMES = {
    "Appended": "plan",
    "Batch": "reader",
    "Delivery": "groups",
    "Expired": "retention",
    "Group": "groups",
    "HeldRange": "holds",
    "Hold": "holds",
    "Kept": "kept",
    "Lag": "groups",
    "Log": "log",
    "LogWriter": "log_writer",
    "Member": "groups",
    "Move": "groups",
    "Producer": "producer",
    "ReadPosition": "holds",
    "Reader": "reader",
    "Rewritten": "rewrite",
    "Statistics": "verify",
    "Topic": "topic",
    "TopicSettings": "description",
    "Transaction": "transaction",
    "Verified": "verify",
    "closest": "ddl",
}

__all__ = [
    "Appended",
    "Batch",
    "Delivery",
    "Expired",
    "Group",
    "HeldRange",
    "Hold",
    "Kept",
    "Lag",
    "Log",
    "LogWriter",
    "Member",
    "Move",
    "Producer",
    "ReadPosition",
    "Reader",
    "Rewritten",
    "Statistics",
    "Topic",
    "TopicSettings",
    "Transaction",
    "Verified",
    "closest",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.log' has no attribute {name!r}")
    return getattr(import_module(f"penstock.log.{_HOMES[name]}"), name)
