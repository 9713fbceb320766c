"""Why Spark did not start, in one sentence with what to do. Pure: from what its process printed before it ended."""

from __future__ import annotations

import re

from penstock.errors import UnavailableError

_PORT = "free the port, or let Spark choose: no spark.*.port in spark-defaults.conf and PYSPARK_SUBMIT_ARGS"
_MEMORY = "free some memory, or let Spark have less: SPARK_DRIVER_MEMORY=1g"
_NAME = "add the name to /etc/hosts, or set SPARK_LOCAL_IP to an address of this machine"
_SPACE = "make space, also where Spark keeps its own files (SPARK_LOCAL_DIRS, else /tmp)"
_PERMISSION = "check who owns the log's folder and the temporary files (SPARK_LOCAL_DIRS, else /tmp)"
_JAVA = "point JAVA_HOME at a complete Java 17 or newer, such as Debian's openjdk-17-jre-headless"
_CLUSTER = "check the URL of --spark, and that the cluster's master runs there and lets this machine connect"

# What Java and Spark print, in the order in which it is looked for: what it means, and what to do.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"Could not reserve enough space|insufficient memory for the Java|Cannot allocate memory|OutOfMemoryError",
        "there is not enough memory for its Java process",
        _MEMORY,
    ),
    (r"No space left on device|Disk quota exceeded", "a disk is full", _SPACE),
    (r"Address already in use", "a port that it needs is taken", _PORT),
    (r"UnknownHostException: ([^\s:]+)", "the name '{0}' has no address", _NAME),
    (
        r"Cannot assign requested address",
        "SPARK_LOCAL_IP or spark.driver.host is not an address of this machine",
        _NAME,
    ),
    (r"Module jdk\.incubator\.vector not found", "its Java lacks the module jdk.incubator.vector", _JAVA),
    (r"UnsupportedClassVersionError|Unrecognized option: --add", "its Java is too old", _JAVA),
    (r"JAVA_HOME is not set|java: (?:command )?not found|bin/java: No such file", "there is no Java", _JAVA),
    (r"AccessDeniedException|Permission denied", "it has no permission for a file", _PERMISSION),
    (
        r"All masters are unresponsive|Could not parse Master URL|Invalid master URL",
        "its cluster does not answer",
        _CLUSTER,
    ),
)


def explain_start_failure(printed: str) -> tuple[str, str] | None:
    """What went wrong, by what Spark's process has printed, and what to do about it; None if that is not known."""
    for pattern, meaning, hint in _CAUSES:
        if match := re.search(pattern, printed):
            return meaning.format(*(group or "" for group in match.groups())), hint
    return None


def start_error(where: str, reason: str, printed: str, output: str | None) -> UnavailableError:
    """The error for a Spark that did not start. `reason` is what PySpark says about it."""
    known = explain_start_failure(printed) or explain_start_failure(reason)
    says_more = "" if output is None else f"; what it says itself is in {output}"
    if known is None:
        return UnavailableError(f"{where}: {reason}", hint=f"`penstock doctor` looks for the cause{says_more}")
    meaning, hint = known
    return UnavailableError(f"{where}: {meaning}", hint=f"{hint}{says_more}")
