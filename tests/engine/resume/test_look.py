"""What a start is decided by."""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock.engine.resume.look import declared_by, find, source_names
from penstock.log import Log


def test_a_program_says_what_it_reads_and_writes(tmp_path: Path) -> None:
    app = ps.App("shop")
    events = app.topic("events", schema="id long")
    app.view("a", events.select(id="id"))
    app.view("b", events.union(app.topic("more", schema="id long")))
    app.sink("c", events.where("id > 1"), to=ps.topic("large"))
    with Log(tmp_path / "log") as log:
        large = log.create_topic("large", "id long").id
        program, there = declared_by(log, app.plan), find(log, app.plan)
    assert program.fingerprints.keys() == {"a", "b", "c"}
    assert program.reads == {"a": {"events"}, "b": {"events", "more"}, "c": {"events"}}
    assert [source_names(output.node) for output in app.plan.outputs] == list(program.reads.values())
    assert (program.sinks["c"].record.topic, program.sinks["c"].record.inputs) == (large, {"events": None})
    assert (there.last, there.pending, set(there.topics), there.missing) == (None, None, {"large"}, {"events", "more"})


def test_a_sink_is_another_one_when_its_topic_is(tmp_path: Path) -> None:
    prints = []
    for topic in ("one", "two"):
        app = ps.App("shop")
        app.sink("c", app.topic("events", schema="id long"), to=ps.topic(topic))
        with Log(tmp_path / "log") as log:
            prints.append(declared_by(log, app.plan).fingerprints["c"])
    assert prints[0] != prints[1]
