"""What an epoch costs as state grows: the same 100,000 changes on top of more and more keys.

A running count and sum per key, all of it in the view. The keys are loaded first; then come the epochs that are
measured, each with one change to each of some keys chosen at random. The step that touches what has grown is also
shown alone: in `run` the runs of states and views are searched and merged. PENSTOCK_BENCH_STATE_KEYS lowers the largest
number of keys for trying.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.engine_running import Lap, Runner, count_from_environment, running, spark_session, view_rows
from benchmarks.harness import Measurement, compared, temporary_directory
from penstock.app import App
from penstock.log import Log, Topic, TopicSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_KEYS = count_from_environment("PENSTOCK_BENCH_STATE_KEYS", 10_000_000)
KEYS = (MOST_KEYS // 100, MOST_KEYS // 10, MOST_KEYS)
CHANGES = 100_000
EPOCHS = 10
AIM = 1.5
APPEND_ROWS = 500_000
SCHEMA = "account bigint, amount bigint"


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, Log(directory / "log") as log, spark_session() as spark:
        measured(log, spark, KEYS[0], "warm_up")
        few = measured(log, spark, KEYS[0], "few_keys")
        yield Measurement(name=epoch_name(KEYS[0]), value=median(few), unit="ms", note=spread(few))
        for keys, topic in zip(KEYS[1:], ("more_keys", "most_keys"), strict=True):
            grown = measured(log, spark, keys, topic)
            yield beside_few(keys, grown, few)
            yield step_beside_few("run", keys, grown, few)


def measured(log: Log, spark: SparkSession, keys: int, name: str) -> list[Lap]:
    """The epochs with `keys` keys of state. The first one is left out: small epochs have a plan of their own."""
    random = np.random.default_rng(keys)
    topic = log.create_topic(name, SCHEMA, settings=TopicSettings(partitions=2, durability="os"))
    with running(app_of(topic), log, spark) as runner:
        load(topic, runner, keys)
        laps = [changed(topic, runner, chosen(keys, random)) for _ in range(EPOCHS + 1)]
        check(runner, keys)
    return laps[1:]


def chosen(keys: int, random: np.random.Generator) -> np.ndarray:
    """Keys that change in one epoch: all different, so that as many rows of the view change, however many there are."""
    return random.choice(keys, CHANGES, replace=keys < CHANGES, shuffle=False)


def app_of(topic: Topic) -> App:
    app = App(f"totals_of_{topic.name}")
    changes = app.topic(topic.name, schema=SCHEMA, partitions=2)
    app.view("totals", changes.group_by("account").agg(changes="count(*)", total="sum(amount)"))
    return app


def load(topic: Topic, runner: Runner, keys: int) -> None:
    for start in range(0, keys, APPEND_ROWS):
        append(topic, np.arange(start, min(start + APPEND_ROWS, keys)))
    runner.run()


def changed(topic: Topic, runner: Runner, accounts: np.ndarray) -> Lap:
    half = len(accounts) // 2
    append(topic, accounts[:half])
    append(topic, accounts[half:])
    (lap,) = runner.run()
    return lap


def append(topic: Topic, accounts: np.ndarray) -> None:
    topic.append(pa.record_batch({"account": accounts, "amount": accounts % 100}))


def check(runner: Runner, keys: int) -> None:
    found = view_rows(runner.views, "SELECT count(*) AS keys, sum(changes) AS changes FROM totals").to_pylist()
    expected = [{"keys": keys, "changes": keys + (EPOCHS + 1) * CHANGES}]
    if found != expected:
        raise AssertionError(f"the view of {keys} keys has {found}; it should have {expected}")


# -- what is said about them ------------------------------------------------------------------------------------------


def beside_few(keys: int, laps: Sequence[Lap], few: Sequence[Lap]) -> Measurement:
    return compared(
        epoch_name(keys),
        median(laps),
        "ms",
        compared_with=f"with {KEYS[0]:,} keys",
        reference=median(few),
        at_most=AIM,
        note=spread(laps),
    )


def step_beside_few(step: str, keys: int, laps: Sequence[Lap], few: Sequence[Lap]) -> Measurement:
    return compared(
        f"of that, step '{step}', {keys:,} keys",
        median(laps, step),
        "ms",
        compared_with=f"with {KEYS[0]:,} keys",
        reference=median(few, step),
    )


def epoch_name(keys: int) -> str:
    return f"epoch of {CHANGES:,} changes, {keys:,} keys of state, median"


def spread(laps: Sequence[Lap]) -> str:
    """The longest epochs are those in which runs are merged."""
    times = [lap.seconds * 1000 for lap in laps]
    return f"{len(laps)} epochs, mean {statistics.mean(times):,.0f} ms, longest {max(times):,.0f} ms"


def median(laps: Sequence[Lap], step: str | None = None) -> float:
    return 1000 * statistics.median(lap.seconds if step is None else lap.steps[step] for lap in laps)
