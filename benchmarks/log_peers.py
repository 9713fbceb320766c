"""The log beside NATS JetStream and Redis streams: the same events, published, acknowledged and read back.

Both are servers, so an event crosses a loopback socket; ours is a library, and it crosses a function call. That stays
in the numbers. What is kept equal is the promise of an acknowledgement:

- Redis with `appendonly yes` and `appendfsync always` acknowledges what is on disk, as our durability "fsync" does.
- JetStream 2.9 acknowledges what it has handed to the operating system and syncs every two minutes, which that version
  cannot change. It stands beside our durability "os", which promises the same.

Their events are 100 bytes that nobody puts together or takes apart. Ours are typed columns of 100 bytes together: Arrow
batches, or dicts where it says so, whose conversion is part of the time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nats
import redis
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from benchmarks.harness import Measurement, compared, percentile, seconds, temporary_directory
from benchmarks.log import SCHEMA, event_batch, scaled, single_events
from penstock.log import Log, TopicSettings

BATCH_EVENTS = 1_000  # what is on its way before the publisher waits; also what one read asks for
EVENTS = BATCH_EVENTS * scaled(200, least=5)
SINGLE_EVENTS = scaled(2_000, least=200)
PAYLOAD = b"x" * 100
ROUNDS = 2
START_SECONDS = 20


@dataclass(frozen=True)
class Times:
    """What one side took."""

    publish_seconds: float
    read_seconds: float
    latencies: list[float]  # of single events, from the call to the acknowledgement


def measurements() -> Iterator[Measurement]:
    yield from beside("redis-server", "Redis streams, appendfsync always", redis_times, durability="fsync")
    yield from beside("nats-server", "NATS JetStream, synced every 2 min", nats_times, durability="os")


def beside(package: str, peer: str, peer_times: Callable[[Path], Times], *, durability: str) -> Iterator[Measurement]:
    if not installed(package):
        note = f"left out: install the package {package} (apt-get install {package})"
        yield Measurement(name=f"log beside {peer}", value=0, unit="measured", note=note)
        return
    rounds = []
    for _ in range(ROUNDS):
        with temporary_directory() as directory:
            as_dicts = seconds_of_dicts(directory, durability=durability)
            rounds.append((as_dicts, our_times(directory, durability=durability), peer_times(directory)))
    dicts, ours, theirs = zip(*rounds, strict=True)
    published = min(times.publish_seconds for times in theirs)
    for name, spent, reference in (
        (f"publish {EVENTS:,} events, {BATCH_EVENTS:,} at a time", min(t.publish_seconds for t in ours), published),
        (f"publish {EVENTS:,} events as dicts, {BATCH_EVENTS:,} at a time", min(dicts), published),
        (f"read {EVENTS:,} events", min(t.read_seconds for t in ours), min(t.read_seconds for t in theirs)),
    ):
        yield compared(
            f"{name}, durability {durability}",
            EVENTS / spent,
            "events/s",
            compared_with=peer,
            reference=EVENTS / reference,
        )
    for percent in (50, 99):
        yield compared(
            f"publish 1 event, p{percent}, durability {durability}",
            min(percentile(times.latencies, percent) for times in ours) * 1e3,
            "ms",
            compared_with=peer,
            reference=min(percentile(times.latencies, percent) for times in theirs) * 1e3,
        )


# -- ours -------------------------------------------------------------------------------------------------------------


def seconds_of_dicts(directory: Path, *, durability: str) -> float:
    rows = single_events(BATCH_EVENTS)
    with Log(directory / "log-of-dicts") as log:
        topic = log.create_topic("events", SCHEMA, settings=TopicSettings(durability=durability))
        return seconds(lambda: [topic.append(rows) for _ in range(EVENTS // BATCH_EVENTS)])


def our_times(directory: Path, *, durability: str) -> Times:
    batches = [event_batch(BATCH_EVENTS, seed=seed) for seed in range(EVENTS // BATCH_EVENTS)]
    with Log(directory / "log") as log:
        settings = TopicSettings(durability=durability)
        topic = log.create_topic("events", SCHEMA, settings=settings)
        publish_seconds = seconds(lambda: [topic.append(batch) for batch in batches])
        read_seconds = seconds(lambda: check_count(sum(len(batch) for batch in topic.batches())))
        single = log.create_topic("single", SCHEMA, settings=settings)
        latencies = [seconds(lambda row=row: single.append(row)) for row in single_events(SINGLE_EVENTS)]
    return Times(publish_seconds, read_seconds, latencies)


# -- Redis streams ----------------------------------------------------------------------------------------------------


def redis_times(directory: Path) -> Times:
    port = free_port()
    settings = ("--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", "")
    with server("redis-server", "--port", str(port), "--dir", str(directory), *settings, port=port):
        client = redis.Redis(port=port)
        publish_seconds = seconds(lambda: publish_to_redis(client))
        read_seconds = seconds(lambda: check_count(read_from_redis(client)))
        latencies = [seconds(lambda: client.xadd("single", {"event": PAYLOAD})) for _ in range(SINGLE_EVENTS)]
        client.close()
    return Times(publish_seconds, read_seconds, latencies)


def publish_to_redis(client: redis.Redis) -> None:
    for _ in range(EVENTS // BATCH_EVENTS):
        pipeline = client.pipeline(transaction=False)
        for _ in range(BATCH_EVENTS):
            pipeline.xadd("events", {"event": PAYLOAD})
        pipeline.execute()


def read_from_redis(client: redis.Redis) -> int:
    count, last = 0, b"0"
    while found := client.xread({"events": last}, count=BATCH_EVENTS):
        # RESP2 answers with a list of streams, RESP3 with a map.
        entries = found[b"events"][0] if isinstance(found, dict) else found[0][1]
        count += len(entries)
        last = entries[-1][0]
    return count


# -- NATS JetStream ---------------------------------------------------------------------------------------------------


def nats_times(directory: Path) -> Times:
    port = free_port()
    arguments = ("--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(directory))
    with server("nats-server", *arguments, port=port):
        return asyncio.run(talk_to_nats(port))


async def talk_to_nats(port: int) -> Times:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    jetstream = client.jetstream(publish_async_max_pending=BATCH_EVENTS)
    for name in ("events", "single"):
        await jetstream.add_stream(name=name, subjects=[name], storage=StorageType.FILE)

    start = time.perf_counter()
    for _ in range(EVENTS):
        await jetstream.publish_async("events", PAYLOAD)
    await jetstream.publish_async_completed()
    publish_seconds = time.perf_counter() - start

    start = time.perf_counter()
    subscription = await jetstream.pull_subscribe("events", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
    count = 0
    while count < EVENTS:
        count += len(await subscription.fetch(BATCH_EVENTS, timeout=10))
    check_count(count)
    read_seconds = time.perf_counter() - start

    latencies = []
    for _ in range(SINGLE_EVENTS):
        start = time.perf_counter()
        await jetstream.publish("single", PAYLOAD)
        latencies.append(time.perf_counter() - start)
    await client.close()
    return Times(publish_seconds, read_seconds, latencies)


# -- what they share --------------------------------------------------------------------------------------------------


def check_count(count: int) -> None:
    if count != EVENTS:
        raise AssertionError(f"{count} events were read back; {EVENTS} had been published")


def installed(package: str) -> bool:
    """Whether the package's program is there; in a container, where nobody minds, it is installed first.

    Not under systemd: there the package would also start its service.
    """
    may_install = os.geteuid() == 0 and shutil.which("apt-get") and not Path("/run/systemd/system").exists()
    if shutil.which(package) is None and may_install:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", package]
        subprocess.run(command, env=os.environ | {"RUNLEVEL": "1"}, capture_output=True, check=False)
    return shutil.which(package) is not None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def server(*command: str, port: int) -> Iterator[None]:
    """Run a server until the block ends; the block begins once it takes connections."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not takes_connections(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]}: it did not start; exit code {process.returncode}")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()


def takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
