"""What every test may use: a Spark session, and how hard Hypothesis searches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, configuration, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

# Spark runs for minutes here, not for months: a JVM that compiles less leaves the cores to the tests. Apps that tests
# start as processes inherit it.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Made by `make test`. With `-Xlog:disable`, a JVM that it does not fit says nothing and starts without it.
ARCHIVE = ROOT / "build" / "spark.jsa"
if ARCHIVE.exists():
    JAVA_OPTIONS += f" -Xlog:disable -XX:SharedArchiveFile={ARCHIVE}"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
LONG = os.environ.get("PENSTOCK_TEST_LONG") == "1"

# Here many programs run over a few rows each: Spark would take a third of the time to compile what it then uses once.
# Everywhere else, and here in the long run, Spark compiles as it does for users.
INTERPRETED_FOLDERS = ("tests/engine/oracle", "tests/engine/publish", "tests/engine/resume")
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# The default run tries the same examples every time, so that a red test is red for everyone; the long run searches.
# Deadlines and `too_slow` measure the machine, not the code.
EXAMPLES = 60
configuration.set_hypothesis_home_dir(ROOT / "build" / "hypothesis")
settings.register_profile(
    "default",
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    max_examples=10 * EXAMPLES,
    derandomize=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("long" if LONG else "default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use Spark share one xdist worker: a second JVM would cost more than it saves."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if not LONG and item.nodeid.startswith(INTERPRETED_FOLDERS):
                item.fixturenames.insert(0, "interpreted")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local session for all tests of a run; tests leave no temporary views or settings behind in it."""
    pytest.importorskip("pyspark", reason="needs pyspark: make test installs it")
    if _java_version() < 17:
        pytest.skip("needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Without it Spark looks up this machine's own name, and does not start where that name has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock tests")
        # As in an app: with TCP sockets every Python task waits 40 ms for a delayed acknowledgement.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Apps that are started meanwhile have their expressions interpreted, not compiled to byte code."""
    # New sessions take their settings from here; those of the session of the tests are not passed on.
    context = spark.sparkContext._jsc.sc().conf()
    for name, value in INTERPRETED.items():
        context.set(name, value)
    yield
    for name in INTERPRETED:
        context.remove(name)


def _java_version() -> int:
    """The version of the Java that Spark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        return 0
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    return int(version[1]) if version else 0
