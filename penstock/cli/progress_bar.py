"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    title: str, total: int | None, *, unit: str = "rows", wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar during the block, which is given a function that advances it. `unit` is 'rows' or 'bytes';
    `total` is None if unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    if not wanted or not console.is_terminal:
        yield lambda count: None
        return
    whole_amount = Column(no_wrap=True, min_width=2 * len(str(total or "")) + 1)
    count = MofNCompleteColumn(table_column=whole_amount)
    amount = [DownloadColumn()] if unit == "bytes" else [count, TextColumn(unit)]
    # The bar takes what the others leave, so that everything fits on a terminal of 60 columns.
    title_column = TextColumn(
        "{task.description}", table_column=Column(max_width=20, no_wrap=True, overflow="ellipsis")
    )
    columns = (title_column, BarColumn(bar_width=None), *amount, TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, expand=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda count: bars.advance(task, count)
