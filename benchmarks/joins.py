"""Joins that are kept up to date.

- Two tables of rows, several per customer on both sides, joined by customer: epochs of 100,000 rows that are replaced,
  each of which takes back and gives pairs with all partners. What an epoch costs is measured with a tenth of the rows,
  and with all of them.
- Sellers with their auctions, without a bound in time, as Nexmark's q3, but with 10 million rows of these.
- Events that find the version of their customer's row that held when they happened, of five versions each.
- One customer with a million rows on one side, who gets rows on the other: the memory it takes to give all pairs.

All but the second have an aggregate over all pairs as their view, so that the join is measured and not its view.
Answers are compared with DuckDB's. PENSTOCK_BENCH_JOIN_ROWS, PENSTOCK_BENCH_SELLERS_ROWS, PENSTOCK_BENCH_HOT_ROWS and
PENSTOCK_BENCH_LOOKUPS lower the sizes for trying.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.engine_memory import SPAWN, watched
from benchmarks.engine_running import Lap, Runner, count_from_environment, running, spark_session, view_rows
from benchmarks.harness import Measurement, compared, temporary_directory
from penstock.app import App
from penstock.flow.event_time import event_time
from penstock.log import Log, Topic, TopicSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = count_from_environment("PENSTOCK_BENCH_JOIN_ROWS", 5_000_000)  # of both tables together
CHANGES, EPOCHS, PARTNERS = 100_000, 10, 5
PAIRS_AIM, FLAT_AIM = 500_000, 1.5

SELLERS_ROWS = count_from_environment("PENSTOCK_BENCH_SELLERS_ROWS", 10_000_000)  # a quarter of them sellers
SELLERS_AIM = 879_000  # what Flink SQL did on two cores with its state in memory

HOT_ROWS = count_from_environment("PENSTOCK_BENCH_HOT_ROWS", 1_000_000)
HOT_PARTNERS = 20

EVENTS = count_from_environment("PENSTOCK_BENCH_LOOKUPS", 10_000_000)
CUSTOMERS, VERSIONS = EVENTS // 10, 5
EVENTS_PER_SECOND = 10_000
LOOKUPS_AIM = 500_000

APPEND_ROWS = 500_000
SECOND = 1_000_000
BEGIN = 1_714_521_600 * SECOND  # 2024-05-01
SETTINGS = TopicSettings(partitions=2, durability="os")


def measurements() -> Iterator[Measurement]:
    with temporary_directory() as directory, Log(directory / "log") as log, spark_session() as spark:
        changed_tables(log, spark, ROWS // 10, "warm_up")
        few = changed_tables(log, spark, ROWS // 10, "few")
        yield Measurement(name=epoch_name(ROWS // 10), value=median(few), unit="ms", note=spread(few))
        many = changed_tables(log, spark, ROWS, "many")
        yield compared(
            epoch_name(ROWS),
            median(many),
            "ms",
            compared_with=f"with {ROWS // 10:,} rows",
            reference=median(few),
            at_most=FLAT_AIM,
            note=spread(many),
        )
        yield pairs_per_second(many)
        sellers(log, spark, SELLERS_ROWS // 10, "few")
        yield sellers(log, spark, SELLERS_ROWS, "many")
        lookups(log, spark, EVENTS // 10, "few")
        yield lookups(log, spark, EVENTS, "many")
    yield hot_key()


# -- two tables -------------------------------------------------------------------------------------------------------


def changed_tables(log: Log, spark: SparkSession, rows: int, name: str) -> list[Lap]:
    """Epochs of changes to tables that have so many rows. The first one is left out: small epochs have another plan."""
    random = np.random.default_rng(rows)
    orders, visits = (table(log, f"{name}_{kind}") for kind in ("orders", "visits"))
    with running(pairs_app(name), log, spark) as runner:
        every = np.arange(rows // 2)
        for topic in (orders, visits):
            put(topic, every, every % 100)
        runner.run()
        laps = []
        for _ in range(EPOCHS + 1):
            for topic in (orders, visits):
                ids = random.choice(rows // 2, CHANGES // 2, replace=False, shuffle=False)
                put(topic, ids, random.integers(0, 100, CHANGES // 2))
            (lap,) = runner.run()
            laps.append(lap)
        check_pairs(runner, orders, visits)
    return laps[1:]


def table(log: Log, name: str) -> Topic:
    settings = TopicSettings(partitions=2, durability="os", key=("id",))
    return log.create_topic(name, "id bigint, customer bigint, value bigint", settings=settings)


def put(topic: Topic, ids: np.ndarray, values: np.ndarray, *, customer: int | None = None) -> None:
    """Every customer has as many rows in each table as there are partners; or one has all."""
    for start in range(0, len(ids), APPEND_ROWS):
        some = ids[start : start + APPEND_ROWS]
        customers = some // PARTNERS if customer is None else np.full(len(some), customer)
        rows = {"id": some, "customer": customers, "value": values[start : start + APPEND_ROWS]}
        topic.append(pa.record_batch(rows))


def pairs_app(name: str) -> App:
    app = App(f"pairs_{name}")
    columns = "id bigint, customer bigint, value bigint"
    orders = app.table(f"{name}_orders", schema=columns, key="id", partitions=2)
    visits = app.table(f"{name}_visits", schema=columns, key="id", partitions=2)
    pairs = orders.join(visits.rename(visit="id", weight="value"), on="customer")
    app.view("totals", pairs.group_by(part="customer % 1000").agg(pairs="count(*)", total="sum(value * weight)"))
    return app


def check_pairs(runner: Runner, orders: Topic, visits: Topic) -> None:
    last = "SELECT arg_max(customer, _n) AS customer, arg_max(value, _n) AS value FROM {} GROUP BY id"
    sql = f"""
        SELECT customer % 1000 AS part, count(*) AS pairs, sum(o.value * v.value)::BIGINT AS total
        FROM ({last.format("orders")}) o JOIN ({last.format("visits")}) v USING (customer) GROUP BY ALL
    """
    check(view_rows(runner.views, "SELECT * FROM totals"), sql, orders=orders, visits=visits)


def pairs_per_second(laps: Sequence[Lap]) -> Measurement:
    """A row that is replaced takes back a pair with each partner, and gives one."""
    pairs = 2 * PARTNERS * CHANGES * len(laps)
    rate = pairs / sum(lap.seconds for lap in laps)
    return Measurement(
        name=f"table with table, {ROWS:,} rows of state",
        value=rate,
        unit="pairs/s",
        aim=f">= {PAIRS_AIM:,}",
        met=rate >= PAIRS_AIM,
        note=f"{CHANGES * len(laps) / sum(lap.seconds for lap in laps):,.4g} replaced rows/s",
    )


def epoch_name(rows: int) -> str:
    return f"epoch of {CHANGES:,} replaced rows, join of {rows:,} rows, median"


def median(laps: Sequence[Lap]) -> float:
    return 1000 * statistics.median(lap.seconds for lap in laps)


def spread(laps: Sequence[Lap]) -> str:
    times = [lap.seconds * 1000 for lap in laps]
    return f"{len(laps)} epochs, mean {statistics.mean(times):,.0f} ms, longest {max(times):,.0f} ms"


# -- sellers and auctions ---------------------------------------------------------------------------------------------

SELLER = "id bigint, name string, city string, state string"
AUCTION = "id bigint, seller bigint, category bigint"
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


def sellers(log: Log, spark: SparkSession, rows: int, name: str) -> Measurement:
    people = log.create_topic(f"{name}_sellers", SELLER, settings=SETTINGS)
    auctions = log.create_topic(f"{name}_auctions", AUCTION, settings=SETTINGS)
    put_sellers(people, auctions, rows // 4)
    with running(sellers_app(name), log, spark) as runner:
        laps = runner.run()
        check_sellers(runner, people, auctions)
    spent = sum(lap.seconds for lap in laps)
    rate = sum(lap.rows for lap in laps) / spent
    return Measurement(
        name=f"sellers with their auctions (q3), {rows:,} rows",
        value=rate,
        unit="rows/s",
        aim=f">= {SELLERS_AIM:,}",
        met=rate >= SELLERS_AIM,
        note=f"{len(laps)} epochs",
    )


def put_sellers(people: Topic, auctions: Topic, count: int) -> None:
    """Three auctions for each seller; three quarters of them are of the newest seller with a round number."""
    random = np.random.default_rng(count)
    states = pa.array(STATES)
    for start in range(0, count, APPEND_ROWS // 4):
        number = np.arange(start, min(start + APPEND_ROWS // 4, count))
        texts = pa.array(number).cast(pa.string())
        people.append(
            pa.record_batch({"id": number, "name": texts, "city": texts, "state": states.take(pa.array(number % 6))})
        )
        each = np.repeat(number, 3)
        hot = random.random(len(each)) < 0.75
        sold_by = np.where(hot, each // 100 * 100, np.maximum(0, each - random.integers(0, 1000, len(each))))
        ids = 3 * start + np.arange(len(each))
        auctions.append(pa.record_batch({"id": ids, "seller": sold_by, "category": 10 + ids % 5}))


def sellers_app(name: str) -> App:
    app = App(f"sellers_{name}")
    app.topic(f"{name}_sellers", schema=SELLER, partitions=2)
    app.topic(f"{name}_auctions", schema=AUCTION, partitions=2)
    app.sql(f"CREATE VIEW found AS {sellers_sql(f'{name}_sellers', f'{name}_auctions')}")
    return app


def sellers_sql(people: str, auctions: str) -> str:
    return f"""
        SELECT p.name, p.city, p.state, a.id FROM {auctions} a JOIN {people} p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """


def check_sellers(runner: Runner, people: Topic, auctions: Topic) -> None:
    asked = "SELECT count(*) AS n, sum(id) AS ids, sum(CAST(name AS BIGINT)) AS names FROM"
    sql = f"{asked} ({sellers_sql('people', 'auctions')})"
    check(view_rows(runner.views, f"{asked} found"), sql, people=people, auctions=auctions)


# -- one key ----------------------------------------------------------------------------------------------------------


def hot_key() -> Measurement:
    """In a process of its own, whose memory is watched from before the partners come."""
    with temporary_directory() as directory:
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=join_hot_key, args=(theirs, directory / "log"))
        process.start()
        theirs.close()  # so that the end of the process is seen as the end of the pipe
        assert process.pid is not None
        try:
            ours.recv()
            with watched(process.pid) as before:
                time.sleep(1)
            with watched(process.pid) as peak:
                ours.send("go on")
                spent: float = ours.recv()
        except EOFError:
            raise RuntimeError("the process that joins one key has failed") from None
        process.join()
    return Measurement(
        name=f"one key, {HOT_ROWS:,} rows get {HOT_PARTNERS} partners",
        value=HOT_ROWS * HOT_PARTNERS / spent,
        unit="pairs/s",
        note=f"peak {peak.total / 1e6:,.0f} MB, {before.total / 1e6:,.0f} MB before ({peak.note()})",
    )


def join_hot_key(connection: Connection, path: Path) -> None:
    with Log(path) as log, spark_session() as spark:
        orders, visits = (table(log, f"hot_{kind}") for kind in ("orders", "visits"))
        with running(pairs_app("hot"), log, spark) as runner:
            put(orders, np.arange(HOT_ROWS), np.arange(HOT_ROWS) % 100, customer=7)
            put(visits, np.arange(2), np.zeros(2, dtype=np.int64))
            runner.run()
            connection.send("loaded")
            connection.recv()
            put(visits, np.arange(2, 2 + HOT_PARTNERS), np.arange(HOT_PARTNERS), customer=7)
            laps = runner.run()
            check_pairs(runner, orders, visits)
        connection.send(sum(lap.seconds for lap in laps))


# -- events and a table -----------------------------------------------------------------------------------------------


def lookups(log: Log, spark: SparkSession, events: int, name: str) -> Measurement:
    customers = max(1, CUSTOMERS * events // EVENTS)
    versions = customers * VERSIONS
    prices = log.create_topic(
        f"{name}_prices",
        "customer bigint, price bigint, since timestamp",
        settings=TopicSettings(partitions=2, durability="os", key=("customer",), time="since"),
    )
    sales = log.create_topic(
        f"{name}_sales",
        "customer bigint, quantity bigint, sold_at timestamp",
        settings=TopicSettings(partitions=2, durability="os", time="sold_at"),
    )
    put_versions(prices, customers, events)
    put_events(sales, customers, events)
    with running(lookups_app(name), log, spark) as runner:
        laps = runner.run()
        check_lookups(runner, prices, sales)
    # The table is read before the first event.
    loaded = next(number for number in range(len(laps)) if sum(lap.rows for lap in laps[: number + 1]) >= versions)
    loading, joining = laps[: loaded + 1], laps[loaded + 1 :]
    rate = events / sum(lap.seconds for lap in joining) if joining else 0.0
    whole = (events + versions) / sum(lap.seconds for lap in laps)
    return Measurement(
        name=f"as of event time, {events:,} events, {customers:,} customers with {VERSIONS} versions",
        value=rate,
        unit="events/s",
        aim=f">= {LOOKUPS_AIM:,}",
        met=rate >= LOOKUPS_AIM,
        note=f"{len(joining)} epochs, after {len(loading)} with the table; {whole:,.4g} rows/s with those",
    )


def put_versions(topic: Topic, customers: int, events: int) -> None:
    """The versions of a customer begin at times that are spread over those of the events, the first before them."""
    span = events * SECOND // EVENTS_PER_SECOND
    for version in range(VERSIONS):
        for start in range(0, customers, APPEND_ROWS):
            some = np.arange(start, min(start + APPEND_ROWS, customers))
            since = BEGIN + version * span // VERSIONS - (some * 7919) % (span // VERSIONS)
            rows = {"customer": some, "price": some % 90 + version, "since": _timestamps(since)}
            topic.append(pa.record_batch(rows))


def put_events(topic: Topic, customers: int, events: int) -> None:
    random = np.random.default_rng(events)
    for start in range(0, events, APPEND_ROWS):
        number = np.arange(start, min(start + APPEND_ROWS, events))
        rows = {
            "customer": random.integers(0, customers, len(number)),
            "quantity": number % 10,
            "sold_at": _timestamps(BEGIN + number * SECOND // EVENTS_PER_SECOND),
        }
        topic.append(pa.record_batch(rows))


def lookups_app(name: str) -> App:
    app = App(f"lookups_{name}")
    prices = app.table(
        f"{name}_prices",
        schema="customer bigint, price bigint, since timestamp",
        key="customer",
        time="since",
        partitions=2,
    )
    sales = app.topic(
        f"{name}_sales",
        schema="customer bigint, quantity bigint, sold_at timestamp",
        time=event_time("sold_at", max_ahead="10000 days"),
        partitions=2,
    )
    priced = sales.join(prices, on="customer", as_of="sold_at")
    app.view("totals", priced.group_by(part="customer % 1000").agg(sales="count(*)", revenue="sum(quantity * price)"))
    return app


def check_lookups(runner: Runner, prices: Topic, sales: Topic) -> None:
    sql = """
        SELECT sales.customer % 1000 AS part, count(*) AS sales, sum(quantity * price)::BIGINT AS revenue
        FROM sales ASOF JOIN prices ON sales.customer = prices.customer AND sales.sold_at >= prices.since GROUP BY ALL
    """
    check(view_rows(runner.views, "SELECT * FROM totals"), sql, prices=prices, sales=sales)


def _timestamps(micros: np.ndarray) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))


# -- checking ---------------------------------------------------------------------------------------------------------


def check(found: pa.Table, sql: str, **topics: Topic) -> None:
    """A benchmark of something that is wrong is worth nothing."""
    with duckdb.connect(config={"threads": 2}) as connection:
        for name, topic in topics.items():
            rows = topic.read().to_arrow()
            plain = {
                one: rows[one].cast(pa.timestamp("us")) if pa.types.is_timestamp(rows[one].type) else rows[one]
                for one in rows.column_names
            }
            connection.register(name, pa.table({**plain, "_n": np.arange(rows.num_rows)}))
        expected = connection.sql(sql).to_arrow_table()
    order = [(found.column_names[0], "ascending")]
    if found.sort_by(order).to_pylist() != expected.select(found.column_names).sort_by(order).to_pylist():
        raise AssertionError(f"the view has {found.num_rows} rows; they are not DuckDB's {expected.num_rows}")
