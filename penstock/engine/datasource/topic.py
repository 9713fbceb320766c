"""How each of Spark's processes comes to an open topic, and how its errors come to the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from penstock.engine.datasource.options import Options
from penstock.errors import PenstockError
from penstock.log import Log, Topic

# A log that is pushed out of the cache is closed by nobody, since a task may still read from it; this is how many a
# worker may have open.
MOST_OPEN = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Which topic, exactly: one that was dropped and created again is another, and so is one with a newer schema.

    Spark uses its processes again for other queries, so what they keep open must not be taken for something newer.
    """

    log: str
    topic: str
    topic_id: str
    schemas: int


def place_of(options: Options, topic: Topic) -> Place:
    return Place(options.log, topic.name, topic.description.id, len(topic.description.schemas))


@contextmanager
def fresh_topic(options: Options) -> Iterator[Topic]:
    """The topic as it is now, for planning; closed at the end."""
    with Log(options.log, create=False) as log:
        yield log.topic(options.topic)


def kept_topic(place: Place) -> Topic:
    """The topic for tasks, opened once per process. A forked process opens it again."""
    return _kept(place, os.getpid())


@lru_cache(maxsize=MOST_OPEN)
def _kept(place: Place, process: int) -> Topic:
    return Log(place.log, create=False).topic(place.topic)


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
