from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from penstock.log.group_commit import GroupCommit


@dataclass
class Job:
    number: int
    is_answered: bool = False


class Interrupted:
    """A gate at which Ctrl-C is pressed."""

    def acquire(self) -> None:
        raise KeyboardInterrupt

    def release(self) -> None:
        pass


def start(together: GroupCommit[Job], jobs: list[Job]) -> list[threading.Thread]:
    threads = [threading.Thread(target=together.do, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def test_who_comes_while_somebody_serves_is_served_next_all_at_once() -> None:
    served: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def serve(jobs: list[Job]) -> None:
        served.append([job.number for job in jobs])
        begun.set()
        go_on.wait(30)
        for job in jobs:
            job.is_answered = True

    together = GroupCommit(serve)
    threads = start(together, [Job(0)])
    begun.wait(30)
    threads += start(together, [Job(number) for number in range(1, 9)])
    while len(together._waiting) < 8:
        pass
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert served[0] == [0]
    assert sorted(served[1]) == list(range(1, 9))
    assert len(served) == 2


def test_many_threads_are_all_served_once() -> None:
    counts: dict[int, int] = {}

    def serve(jobs: list[Job]) -> None:
        for job in jobs:
            counts[job.number] = counts.get(job.number, 0) + 1
            job.is_answered = True

    together = GroupCommit(serve)

    def work(first: int) -> None:
        for number in range(first, first + 200):
            together.do(Job(number))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 1_600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts == dict.fromkeys(range(1_600), 1)
    assert not together._serving


def test_an_error_while_serving_reaches_the_server_and_the_next_can_serve() -> None:
    def serve(jobs: list[Job]) -> None:
        for job in jobs:
            job.is_answered = True
        raise ZeroDivisionError

    together = GroupCommit(serve)
    for number in range(2):
        with pytest.raises(ZeroDivisionError):
            together.do(Job(number))


@pytest.mark.parametrize("its_turn", [False, True])
def test_an_interrupted_waiter_holds_nobody_up(its_turn: bool) -> None:
    together: GroupCommit[Job] = GroupCommit(lambda jobs: [setattr(job, "is_answered", True) for job in jobs])  # type: ignore[arg-type]
    together._serving = True  # somebody else is
    other = Job(2)
    thread = None
    interrupted = _waiting(together, Job(1))
    interrupted.turn = its_turn
    if its_turn:
        together._waiting = []  # its turn had come: it was about to take what waits
        thread = start(together, [other])[0]
        while not together._waiting:
            pass
    with pytest.raises(KeyboardInterrupt):
        together._sleep(interrupted)
    assert interrupted not in together._waiting
    if thread is not None:
        thread.join(30)
        assert other.is_answered


def _waiting(together: GroupCommit[Job], job: Job):  # type: ignore[no-untyped-def]
    from penstock.log.group_commit import _Waiting

    waiting = _Waiting(job)
    waiting.gate = Interrupted()  # type: ignore[assignment]
    together._waiting.append(waiting)
    return waiting
