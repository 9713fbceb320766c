"""How each of Spark's processes comes to an open topic, and how its errors come to the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache

from penstock.contracts import Topic
from penstock.engine.datasource.options import Options
from penstock.errors import PenstockError
from penstock.logs import open_log

# A log that is pushed out of the cache is closed by nobody, since a task may still read from it; this is how many a
# worker may have open.
MOST_OPEN = 8


@dataclass(frozen=True, slots=True)
class TopicRef:
    """Which topic, exactly: one that was dropped and created again is another, and so is one with a newer schema.

    Spark uses its processes again for other queries, so what they keep open must not be taken for something newer.
    """

    log: str  # its URL
    topic: str
    topic_id: str
    schema_version: int


def topic_ref(log: str, topic: Topic) -> TopicRef:
    return TopicRef(log, topic.name, topic.id, topic.schema_version)


@contextmanager
def fresh_topic(options: Options) -> Iterator[Topic]:
    """The topic as it is now, for planning; closed at the end."""
    with closing(open_log(options.log)) as log:
        yield log.topic(options.topic)


def cached_topic(ref: TopicRef) -> Topic:
    """The topic for tasks, opened once per process. A forked process opens it again."""
    return _open_topic(ref, os.getpid())


@lru_cache(maxsize=MOST_OPEN)
def _open_topic(ref: TopicRef, process: int) -> Topic:
    return open_log(ref.log).topic(ref.topic)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let Spark show our errors without the Python stack, which would stand before the line that helps.

    Spark looks at this variable in the process that failed, and ends that process after it.
    """
    try:
        yield
    except PenstockError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
