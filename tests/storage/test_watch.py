"""Waiting for files to change, with inotify and by polling."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from penstock.storage import watch as watch_module
from penstock.storage.watch import IN_MOVED_TO, Watch


@pytest.fixture(params=["inotify", "polling"])
def watch(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    if request.param == "polling":
        monkeypatch.setattr(watch_module, "_inotify", lambda paths, events: None)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"before")
    return Watch([tmp_path / "one", tmp_path / "two"])


def test_a_change_before_the_wait_is_not_lost(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "two").write_bytes(b"after, and longer")
    assert watch.wait(10)
    watch.close()


def test_without_a_change_the_wait_ends_in_time(watch: Watch) -> None:
    assert not watch.wait(0.01)
    watch.close()


def test_a_process_with_many_files_open_can_wait(tmp_path: Path) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2_000:
        pytest.skip(f"a process may have only {most} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, 2_000), most))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        (tmp_path / "one").write_bytes(b"before")
        watch = Watch([tmp_path / "one"])
        (tmp_path / "one").write_bytes(b"after, and longer")
        assert watch.wait(10)
        watch.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_each_change_wakes_once(watch: Watch, tmp_path: Path) -> None:
    for content in (b"1", b"22", b"333"):
        (tmp_path / "one").write_bytes(content)
        assert watch.wait(10)
        assert not watch.wait(0.0)
    watch.close()


@pytest.mark.parametrize("polling", [False, True])
def test_a_file_that_is_put_in_place_wakes_whoever_watches_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, polling: bool
) -> None:
    if polling:
        monkeypatch.setattr(watch_module, "_inotify", lambda paths, events: None)
    (tmp_path / "folder").mkdir()
    (tmp_path / "draft").write_bytes(b"whole")
    watch = Watch([tmp_path / "folder"], events=IN_MOVED_TO)
    (tmp_path / "draft").rename(tmp_path / "folder" / "file")
    assert watch.wait(10)
    assert not watch.wait(0.01)
    watch.close()
