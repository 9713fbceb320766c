"""The reports of the tasks of views and sinks in one epoch, by output. Plain data.

Spark returns the report of each task exactly once, no matter which of its attempts succeeded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engine.ledger.records import States
from penstock.engine.state.run import RunFile


@dataclass(frozen=True, slots=True)
class ReportedOutputs:
    """The reports of all tasks, as pairs of a partition and a report, by output."""

    reports: Mapping[str, list[tuple[int, Mapping[str, Any]]]]

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]]) -> ReportedOutputs:
        reports: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for row in rows:
            reports.setdefault(row["output"], []).append((row["partition"], json.loads(row["report"])))
        return ReportedOutputs(reports)

    def partitions(self, output: str) -> set[int]:
        return {partition for partition, _ in self.reports.get(output, [])}

    def events(self, output: str) -> int:
        return sum(report["events"] for _, report in self.reports.get(output, []))

    def paths(self, sink: str) -> list[str]:
        """The files that hold the rows of a sink."""
        return [report["path"] for _, report in self.reports.get(sink, [])]

    def runs_after(self, view: str, before: States) -> dict[int, tuple[RunFile, ...]]:
        """The runs of a view after the epoch, by partition."""
        after = {partition: list(files) for partition, files in before.get(view, {}).items()}
        for partition, report in self.reports.get(view, []):
            if "runs" in report:
                after[partition] = list(map(RunFile.from_document, report["runs"]))
            if "merged" in report:
                _replace_merged(
                    after[partition], report["merged"]["files"], RunFile.from_document(report["merged"]["into"])
                )
        for partition, report in self.reports.get(view, []):
            if "added" in report:
                after.setdefault(partition, []).append(RunFile.from_document(report["added"]))
        return {partition: tuple(files) for partition, files in sorted(after.items())}

    def changes(self, view: str) -> tuple[RunFile, ...]:
        """The files that hold the changes of a view."""
        files: list[RunFile] = []
        for _, report in self.reports.get(view, []):
            files += map(RunFile.from_document, report.get("changes", []))
            files += [RunFile.from_document(report["added"])] if "added" in report else []
        return tuple(files)


def _replace_merged(files: list[RunFile], merged_paths: list[str], merged_file: RunFile) -> None:
    """Replace the files that were merged by the one they became, unless another task has done so before."""
    paths = [file.path for file in files]
    if not set(merged_paths) <= set(paths):
        return
    at = paths.index(merged_paths[0])
    files[at : at + len(merged_paths)] = [merged_file]
