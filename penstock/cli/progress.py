"""A progress bar on stderr, where that is a terminal; silence otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(
    title: str, total: int | None, *, unit: str = "rows", wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Give a function to be told of every step; `unit` is 'rows' or 'bytes', `total` None where it is not known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not wanted or not console.is_terminal:
        yield lambda count: None
        return
    amount = [DownloadColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    columns = (TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda count: bars.advance(task, count)
