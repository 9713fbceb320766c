"""An app whose tasks run in other processes than its driver: nothing in them relies on the driver's memory."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from penstock.log import Log, TopicSettings
from tests.faults.app_oracle import shown
from tests.faults.app_processes import SCHEMA, run_once, some_rows

# A user's function, which uses a module that lies beside the app.
PROGRAM = f'''
from factors import tenfold

from penstock import App, AppSettings, tumbling


def scaled(rows):
    from pyspark.sql.functions import udf

    return rows.withColumn("amount", udf(tenfold, "long")("amount"))


app = App("shop", settings=AppSettings(state_partitions=2, max_rows=60))
events = app.topic("events", schema="{SCHEMA}", key="id", time="at", partitions=2, lateness="1 second")
large = events.map(scaled, schema="{SCHEMA}")
app.view("totals", large.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
seconds = events.window(tumbling("1 second"), emit="changes")
app.view("seconds", seconds.group_by("kind").agg(events="count(*)", amount="sum(amount)"))
'''
FACTORS = """
def tenfold(amount):
    return 10 * amount
"""


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, in a folder of its own: its workers write beside it."""
    folder.mkdir()
    for path in Path(find_spec("pyspark").submodule_search_locations[0]).iterdir():  # type: ignore[union-attr,index]
        (folder / path.name).symlink_to(path)
    return folder


def test_executors_of_their_own_give_the_same_views(tmp_path: Path, root: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    program.with_name("factors.py").write_text(FACTORS)
    with Log(root) as log:
        topic = log.create_topic("events", SCHEMA, settings=TopicSettings(partitions=2, key=("id",), time="at"))
        for start in range(0, 150, 50):
            topic.append(some_rows(start, 50, behind=3 - start / 50))
    home = spark_home(tmp_path / "spark")
    relative = root.relative_to(tmp_path)  # executors have folders of their own
    master = ("--spark", "local-cluster[2,1,1024]")
    app = run_once(program, relative, *master, environment={"SPARK_HOME": str(home)}, folder=tmp_path)
    assert [epoch["rows"] for epoch in app.epochs if epoch["rows"]] == [60, 60, 30]
    assert len(list(home.glob("work/*/*/stderr"))) >= 2  # two executors
    amounts = {kind: sum(one % 100 for one in range(150) if "abc"[one % 3] == kind) for kind in "abc"}
    expected = [(kind, 50, amount) for kind, amount in amounts.items()]
    assert shown(root, "select kind, events, amount / 10 from totals") == expected
    assert shown(root, "select kind, sum(events), sum(amount) from seconds group by kind") == expected
    assert len(shown(root, "select * from seconds")) >= 9
