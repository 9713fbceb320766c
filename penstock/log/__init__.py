"""The log: where facts are kept. An embedded, partitioned, typed, append-only log in plain files, with no server.

The main path of a write: Log -> Topic.append -> Appender.requests -> PartitionWriter.append -> stage -> publish.
The main path of a read: Log -> Topic.reader -> Reader.poll -> FrameReader.read -> read_batches.

The names below are loaded when they are first used: who needs one module need not load all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.contracts import Batch, TopicSettings
    from penstock.log.description import check_topic
    from penstock.log.groups import Delivery, Group, Lag, Member, Move
    from penstock.log.intake import Rows
    from penstock.log.kept import Kept
    from penstock.log.log import Log
    from penstock.log.log_writer import LogWriter
    from penstock.log.pending_write import Appended
    from penstock.log.producer import Producer
    from penstock.log.reader import Reader
    from penstock.log.repair import carry_out_repair, plan_repair
    from penstock.log.retention import Expired, Retention
    from penstock.log.rewrite import ERASE_WAIT_SECONDS, Rewritten, rows_with
    from penstock.log.staging import StagedRows, Staging
    from penstock.log.topic import Topic, parse_moment
    from penstock.log.transaction import Transaction
    from penstock.log.verify import Statistics, Verified

_HOMES = {
    "ERASE_WAIT_SECONDS": "penstock.log.rewrite",
    "Appended": "penstock.log.pending_write",
    "Batch": "penstock.contracts",
    "Delivery": "penstock.log.groups",
    "Expired": "penstock.log.retention",
    "Group": "penstock.log.groups",
    "Kept": "penstock.log.kept",
    "Lag": "penstock.log.groups",
    "Log": "penstock.log.log",
    "LogWriter": "penstock.log.log_writer",
    "Member": "penstock.log.groups",
    "Move": "penstock.log.groups",
    "Producer": "penstock.log.producer",
    "Reader": "penstock.log.reader",
    "Retention": "penstock.log.retention",
    "Rewritten": "penstock.log.rewrite",
    "Rows": "penstock.log.intake",
    "StagedRows": "penstock.log.staging",
    "Staging": "penstock.log.staging",
    "Statistics": "penstock.log.verify",
    "Topic": "penstock.log.topic",
    "TopicSettings": "penstock.contracts",
    "Transaction": "penstock.log.transaction",
    "Verified": "penstock.log.verify",
    "carry_out_repair": "penstock.log.repair",
    "check_topic": "penstock.log.description",
    "parse_moment": "penstock.log.topic",
    "plan_repair": "penstock.log.repair",
    "rows_with": "penstock.log.rewrite",
}

__all__ = [
    "ERASE_WAIT_SECONDS",
    "Appended",
    "Batch",
    "Delivery",
    "Expired",
    "Group",
    "Kept",
    "Lag",
    "Log",
    "LogWriter",
    "Member",
    "Move",
    "Producer",
    "Reader",
    "Retention",
    "Rewritten",
    "Rows",
    "StagedRows",
    "Staging",
    "Statistics",
    "Topic",
    "TopicSettings",
    "Transaction",
    "Verified",
    "carry_out_repair",
    "check_topic",
    "parse_moment",
    "plan_repair",
    "rows_with",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.log' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
