"""Keep the Java classes that Spark loads in an archive, from which a JVM starts in two thirds of the time.

    python tools/spark_archive.py build/spark.jsa

A small app runs once, in a JVM that writes down at its end what it has loaded. Tests name the archive to every JVM
that they start. It is made for one Java and one Spark: a JVM that it does not fit starts without it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock import App, tumbling
from penstock.testing import Rig

ROW = {"id": 1, "k": "a", "v": 1, "happened": "2024-05-01 10:00:00"}
COLUMNS = "id bigint, k string, v bigint, happened timestamp"


def main(archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    draft = archive.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    # The garbage collector has to be the one of the tests.
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={draft.resolve()} -Xlog:disable"
    run_small_app()
    end_java()
    draft.replace(archive)


def run_small_app() -> None:
    app = App("archive")
    events = app.topic("events", schema=COLUMNS, key="id", time="happened", lateness="1 second")
    items = app.table("items", schema="k string, name string", key="k")
    app.view("counts", events.window(tumbling("1 minute")).group_by("k").agg(n="count(*)", s="sum(v)"))
    app.view("named", events.join(items, on="k").where("v > 0"))
    with Rig(app) as rig:
        rig.append("events", [ROW])
        rig.append("items", [{"k": "a", "name": "first"}])
        rig.finish()


def end_java() -> None:
    """Let the JVM end by itself, however long it takes to write the archive."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    assert context._gateway is not None
    java = context._gateway.proc
    context.stop()
    context._gateway.shutdown()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
