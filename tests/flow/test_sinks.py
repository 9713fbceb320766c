"""`ps.topic`: the topic that a sink writes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import topic
from penstock.errors import DeclarationError
from penstock.flow.sinks import SinkTopic


def test_a_topic_has_a_name_and_partitions() -> None:
    assert topic("alerts") == SinkTopic("alerts", 1)
    assert topic("alerts", partitions=2) == SinkTopic("alerts", 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("my alerts", {}, "'my alerts': this is not a name for a topic"),
        (None, {}, "a topic has a name; found None"),
        ("alerts.dead", {}, "names with this ending are for rows that are set aside"),
        ("alerts", {"partitions": 0}, "it cannot have 0 partitions"),
        ("alerts", {"partitions": "2"}, "partitions is a whole number; found '2'"),
        ("alerts", {"schema": "a int"}, "there is no parameter 'schema'"),
    ],
)
def test_a_mistake_names_the_line(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_sinks.py:\d+: topic.*{message}"):
        topic(name, **options)
