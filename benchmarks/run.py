"""The benchmark runner: find the parts, run them one after the other, show each number as it comes, keep them all.

A part that raises becomes a failed row; the others still run, and the runner exits 1 at the end. An aim that is missed
is shown and kept, and is not a failure: what a slow machine proves is for the reader to judge.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import iter_modules

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

import benchmarks
from benchmarks.harness import BUILD, Measurement

NOT_PARTS = {"harness", "run", "bids", "capture_debezium", "engine_peers", "engine_queries", "engine_running"}
NOT_PARTS |= {"nexmark"}  # a package


@dataclass
class Results:
    """What has been measured so far."""

    measurements: list[tuple[str, Measurement]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    parts = _parts(only=options.only)
    if options.list:
        print("\n".join(parts))
        return 0
    if not parts:
        print(f"benchmarks: no part is called {options.only!r}; there are: {', '.join(_parts()) or 'none yet'}")
        return 2
    results = _run_and_show(parts)
    written = _write(results)
    print(f"written to {written.relative_to(BUILD.parent)}")
    return 1 if results.failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Run the benchmarks.")
    parser.add_argument("--only", metavar="PART", help="run this part and those called PART_...")
    parser.add_argument("--list", action="store_true", help="list the parts and stop")
    return parser.parse_args(arguments)


def _parts(*, only: str | None = None) -> list[str]:
    names = sorted(module.name for module in iter_modules(benchmarks.__path__) if module.name not in NOT_PARTS)
    return [name for name in names if only is None or name == only or name.startswith(f"{only}_")]


def _run_and_show(parts: Sequence[str]) -> Results:
    results = Results()
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    # Where there is no terminal, Live prints the table once, at the end; the progress lines come at once in both.
    with Live(_table(results), console=console, refresh_per_second=4, vertical_overflow="visible") as live:
        for number, part in enumerate(parts, start=1):
            console.print(f"\\[{number}/{len(parts)}] {part}", highlight=False)
            _run_part(part, results, live)
    if not console.is_terminal:
        console.print()
    return results


def _run_part(part: str, results: Results, live: Live) -> None:
    start = time.perf_counter()
    try:
        for measurement in importlib.import_module(f"benchmarks.{part}").measurements():
            results.measurements.append((part, measurement))
            line = f"  {measurement.name}: {measurement.value:,.4g} {measurement.unit}"
            live.console.print(escape(f"{line}  ({time.perf_counter() - start:.1f} s)"), highlight=False)
            live.update(_table(results))
    except Exception as error:  # noqa: BLE001 - whatever a part raises, the other parts still run
        traceback.print_exc()
        results.failures.append((part, f"{type(error).__name__}: {error}"))
        live.update(_table(results))


def _table(results: Results) -> Table:
    table = Table("part", "measured", title="benchmarks", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("compared with")
    table.add_column("ratio", justify="right")
    for heading in ("aim", "met", "note"):
        table.add_column(heading)
    for part, m in results.measurements:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[m.met]
        ratio = "" if m.ratio is None else f"{m.ratio:.3g}"
        value = f"{m.value:,.4g} {m.unit}"
        table.add_row(*map(escape, (part, m.name, value, m.compared_with, ratio, m.aim)), met, escape(m.note))
    for part, error in results.failures:
        table.add_row(escape(part), "[red]failed[/]", "", "", "", "", "[red]no[/]", escape(error))
    return table


def _write(results: Results) -> Path:
    content = {
        "machine": _machine(),
        "measurements": [{"part": part, **asdict(measurement)} for part, measurement in results.measurements],
        "failures": [{"part": part, "error": _without_paths(error)} for part, error in results.failures],
    }
    BUILD.mkdir(exist_ok=True)
    path = BUILD / "bench.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _machine() -> dict[str, object]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "pyarrow": importlib.metadata.version("pyarrow"),
        "pyspark": importlib.metadata.version("pyspark"),
    }


def _without_paths(text: str) -> str:
    """The results may be shown to others, and where this machine keeps its files is nobody's business."""
    return text.replace(str(BUILD.parent), ".").replace(tempfile.gettempdir(), "<temporary>")


if __name__ == "__main__":
    sys.exit(main())
