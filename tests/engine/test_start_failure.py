"""Why Spark did not start, by what its process has printed: texts as Java 17 and Spark 4.3 print them."""

from __future__ import annotations

import pytest

from penstock.engine.start_failure import explain_start_failure, start_error

PRINTED = {
    "Error occurred during initialization of VM\nCould not reserve enough space for 943718400KB object heap": (
        "not enough memory",
        "SPARK_DRIVER_MEMORY=1g",
    ),
    "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed; error='Cannot allocate memory' (errno=12)": (
        "not enough memory",
        "SPARK_DRIVER_MEMORY=1g",
    ),
    "java.net.BindException: Address already in use: Service 'sparkDriver' failed after 16 retries": (
        "a port that it needs is taken",
        "spark.*.port",
    ),
    "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed": (
        "not an address of this machine",
        "SPARK_LOCAL_IP",
    ),
    "Caused by: java.net.UnknownHostException: build-7: build-7: Name or service not known": (
        "the name 'build-7' has no address",
        "/etc/hosts",
    ),
    "java.lang.module.FindException: Module jdk.incubator.vector not found": ("lacks the module", "JAVA_HOME"),
    "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been compiled by": (
        "its Java is too old",
        "JAVA_HOME",
    ),
    "java.io.IOException: No space left on device": ("a disk is full", "SPARK_LOCAL_DIRS"),
    "java.nio.file.AccessDeniedException: /tmp/blockmgr-1": ("it has no permission", "who owns"),
    "ERROR StandaloneSchedulerBackend: All masters are unresponsive! Giving up.": ("does not answer", "--spark"),
}


@pytest.mark.parametrize("printed", PRINTED)
def test_what_spark_prints_is_told_in_a_sentence_with_what_to_do(printed: str) -> None:
    meaning, hint = PRINTED[printed]
    known = explain_start_failure(f"WARNING: Using incubator modules\n{printed}\n\tat java.base/java.lang.Thread.run")
    assert known is not None
    assert meaning in known[0]
    assert hint in known[1]


def test_an_unknown_reason_is_given_as_it_is_and_the_doctor_recommended() -> None:
    error = start_error("Spark did not start", "it has a cold", "nothing of interest", "/log/apps/shop/spark.log")
    assert error.message == "Spark did not start: it has a cold"
    assert error.hint == "`penstock doctor` looks for the cause; what it says itself is in /log/apps/shop/spark.log"
