"""What `penstock doctor` checks. Each check answers with one line: what was found, and what to do about it."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.cli.output import count_text
from penstock.errors import PenstockError
from penstock.units import parse_size

State = Literal["ok", "warning", "problem"]

OLDEST_PYTHON = (3, 11)
LEAST_FREE_BYTES = 100 * 1000**2
LITTLE_FREE_BYTES = 1000**3
FEW_OPEN_FILES = 4096
LITTLE_MEMORY_BYTES = 2 * 1000**3
# File systems of other machines, where locks and mappings may not be what they are on a disk.
NETWORK_FILE_SYSTEMS = re.compile(r"nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|fuse\.(sshfs|s3fs|gcsfuse|rclone)")
_CONDITION = re.compile(r"(==|!=|>=|<=|<|>)\s*([\d.]+?)(\.\*)?$")


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of one check: what was found, and what to do if it is not ok."""

    name: str
    state: State
    found: str
    hint: str | None = None


def check_python() -> Check:
    found = f"Python {sys.version.split()[0]} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", "problem", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def check_libraries() -> Check:
    """Whether the libraries that this package asks for are installed, in versions that it works with."""
    missing, wrong, versions = [], [], []
    for requirement in metadata.requires("penstock") or []:
        if ";" in requirement:  # only with an extra
            continue
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(requirement)
            continue
        if not satisfies(version, requirement.removeprefix(name)):
            wrong.append(f"{name} {version}, not {requirement}")
        versions.append(f"{name} {version}")
    if missing or wrong:
        found = "; ".join([*(f"{name} is missing" for name in missing), *wrong])
        return Check("libraries", "problem", found, "pip install --upgrade penstock")
    main_versions = [text for text in versions if text.startswith(("pyspark ", "pyarrow ", "duckdb "))]
    return Check("libraries", "ok", ", ".join(main_versions))


def satisfies(version: str, conditions: str) -> bool:
    """Whether a version fits conditions such as '==4.3.*' or '>=2,<3'."""
    for condition in filter(None, map(str.strip, conditions.split(","))):
        match = _CONDITION.match(condition)
        if match is None:
            continue
        wanted, given = _numbers(match[2]), _numbers(version)
        if match[3] or match[1] in ("==", "!="):
            given = given[: len(wanted)] if match[3] else given
            if (given == wanted) != (match[1] == "=="):
                return False
            continue
        order = (given > wanted) - (given < wanted)
        if order not in {">=": (0, 1), "<=": (0, -1), "<": (-1,), ">": (1,)}[match[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def check_java() -> Check:
    from penstock.engine.java import find_java

    try:
        java = find_java()
    except PenstockError as error:
        return Check("java", "problem", error.message, error.hint)
    return Check("java", "ok", f"Java {java.version} ({java.path}, found by {java.found_by})")


def check_memory() -> Check:
    wanted = os.environ.get("SPARK_DRIVER_MEMORY", "4g")
    try:
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        free = int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return Check("memory", "ok", f"Spark's Java process may use {wanted}; what is free is not known here")
    found = f"{_size_text(free)} free; Spark's Java process may use {wanted} (SPARK_DRIVER_MEMORY)"
    if free < LITTLE_MEMORY_BYTES:
        return Check("memory", "warning", found, "free some memory, or let Spark have less: SPARK_DRIVER_MEMORY=1g")
    return Check("memory", "ok", found)


def check_open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEW_OPEN_FILES:
        return Check("open files", "ok", f"a process may open {soft if soft >= 0 else 'any number of'} files")
    return Check(
        "open files",
        "warning",
        f"a process may open {soft} files, which is few for an app with much state",
        f"raise the limit: ulimit -n {min(hard, 65536) if hard >= 0 else 65536}",
    )


def check_clock() -> Check:
    now = datetime.now(UTC)
    if not 2024 <= now.year < 2100:
        return Check("clock", "problem", f"it is {now:%Y-%m-%d %H:%M} by the clock of this machine", "set the clock")
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        hint = "install the time zones: Debian's tzdata, or pip install tzdata"
        return Check("clock", "warning", "there are no time zones, so windows in local time do not work", hint)
    return Check("clock", "ok", f"{now:%Y-%m-%dT%H:%M:%SZ}; local time zone {time.strftime('%Z')}")


def check_host_name() -> Check:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        if "SPARK_LOCAL_IP" in os.environ:
            return Check("host name", "ok", f"'{name}' has no address; SPARK_LOCAL_IP is set")
        hint = f"only needed for a cluster: add '{name}' to /etc/hosts, or set SPARK_LOCAL_IP"
        return Check("host name", "warning", f"'{name}' has no address", hint)
    return Check("host name", "ok", f"'{name}' is {address}")


def check_temporary_files() -> Check:
    """Spark keeps rows on their way between two steps in temporary files."""
    folder = Path((os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0])
    return _check_folder("temporary files", folder, "SPARK_LOCAL_DIRS names another folder")


def check_log(log: str) -> Check:
    """A log by its path or URL: an existing one opens, a new one could be created."""
    from penstock import logs

    try:
        named = logs.named_log(log)
        logs.check_log(log)
        if logs.log_exists(log):
            opened = logs.open_log(log)
            found = f"{log}: it has {count_text(len(opened.topics()), 'topic')}"
            opened.close()
        elif isinstance(named, Path):
            found = f"{log}: it does not exist yet, and can be created"
        else:
            return Check("log", "ok", f"{log}: it does not exist yet")
    except PenstockError as error:
        return Check("log", "problem", error.message, error.hint)
    except OSError as error:
        return Check("log", "problem", f"{log}: {error.strerror}", "check who owns it, and as whom this process runs")
    if not isinstance(named, Path):
        return Check("log", "ok", found)
    return _check_folder("log", named.absolute(), "name another folder with --log", found)


def _check_folder(name: str, folder: Path, hint: str, found: str | None = None) -> Check:
    """Whether files in a folder can be written, locked and mapped, and how much space there is."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        clock_difference = _try_file(existing)
    except OSError as error:
        return Check(name, "problem", f"{existing}: files cannot be written, locked and mapped: {error.strerror}", hint)
    free = shutil.disk_usage(existing).free
    found = f"{found or folder}; {_size_text(free)} free"
    if free < LEAST_FREE_BYTES:
        return Check(name, "problem", found, f"make space, or {hint}")
    kind = file_system(existing)
    if NETWORK_FILE_SYSTEMS.fullmatch(kind):
        text = "use a local disk: locks and mappings of a network file system may fail or be slow"
        return Check(name, "warning", f"{found}; the file system is {kind}", text)
    if abs(clock_difference) > 5:
        return Check(name, "warning", f"{found}; its clock differs by {clock_difference:.0f} s", "set the clocks")
    if free < LITTLE_FREE_BYTES:
        return Check(name, "warning", found, f"make space, or {hint}")
    return Check(name, "ok", found)


def _try_file(folder: Path) -> float:
    """Write, lock, map and sync a file: how far its clock is from ours, in seconds."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-doctor-") as file:
        file.write(b"penstock")
        file.flush()
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            if mapped[:] != b"penstock":
                raise OSError(0, "a mapped file has other content than was written")
        return os.fstat(file.fileno()).st_mtime - time.time()


def file_system(path: Path, mounts: str | None = None) -> str:
    """The kind of file system that a path is on; 'unknown' where the machine does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text()
        except OSError:
            return "unknown"
    points = [(line.split()[1].replace("\\040", " "), line.split()[2]) for line in mounts.splitlines()]
    fitting = [(len(point), kind) for point, kind in points if path.resolve().is_relative_to(point)]
    return max(fitting, default=(0, "unknown"), key=lambda found: found[0])[1]


def check_spark(master: str | None) -> Check:
    """Start Spark and run a small job in a Python worker, as an app does."""
    from penstock.engine.trial import run_trial

    began = time.monotonic()
    try:
        version = run_trial(master)
    except PenstockError as error:
        return Check("spark", "problem", error.message, error.hint)
    where = "on this machine" if master is None else f"on {master}"
    return Check("spark", "ok", f"Spark {version} started {where} and ran a job in {time.monotonic() - began:.0f} s")


def check_master(master: str) -> Check:
    from penstock.engine.master import local_address

    try:
        address = local_address(master)
    except PenstockError as error:
        return Check("cluster", "problem", error.message, error.hint)
    return Check("cluster", "ok", f"{master} answers; it reaches this machine at {address}" if address else master)


def checks(log: str, master: str | None, *, quick: bool) -> Iterator[Check]:
    """All checks, one after the other. Spark is not started where something that it needs is missing."""
    simple: list[Callable[[], Check]] = [
        check_python,
        check_libraries,
        check_java,
        check_memory,
        check_open_files,
        check_clock,
        check_host_name,
        check_temporary_files,
    ]
    needed = []
    for check in simple:
        needed.append(check())
        yield needed[-1]
    yield check_log(log)
    if master is not None:
        needed.append(check_master(master))
        yield needed[-1]
    if quick:
        return
    if any(answer.state == "problem" for answer in needed):
        yield Check("spark", "problem", "it was not started: see the problems above", "solve those first")
    else:
        yield check_spark(master)


def _size_text(size: int) -> str:
    return f"{size / parse_size('1 GB'):,.1f} GB"
