"""`penstock doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.options import DEFAULT_LOG, AsJson
from penstock.cli.output import print_json, print_line, print_stderr

CheckedLog = Annotated[
    str,
    typer.Option("--log", envvar="PENSTOCK_LOG", metavar="PATH|URL", help="The log, by its folder or its URL."),
]


@command
def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Do not start Spark.")] = False,
    spark: Annotated[
        str | None, typer.Option("--spark", metavar="MASTER", help="Check this Spark cluster too.")
    ] = None,
    as_json: AsJson = False,
    log: CheckedLog = str(DEFAULT_LOG),
) -> None:
    """Check that apps can run here: Python, Java, Spark, the folder of the log, memory and limits.

    Each check is one line that says ok, warning or problem, and what to do. Status 1 if there is a problem.
    """
    from penstock.cli.doctor_checks import Check, checks

    answers: list[Check] = []
    for answer in checks(log, spark, quick=quick):
        answers.append(answer)
        if not as_json:
            print_line(f"{answer.state:<8} {answer.name:<16} {answer.found}")
            if answer.hint and answer.state != "ok":
                print_line(f"{'':<25} {answer.hint}")
    problems = sum(answer.state == "problem" for answer in answers)
    if as_json:
        print_json({"ok": not problems, "checks": [asdict(answer) for answer in answers]})
    elif problems:
        print_stderr(f"{problems} of {len(answers)} checks found a problem")
    if problems:
        raise typer.Exit(1)
