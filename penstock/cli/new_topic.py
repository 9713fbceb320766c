"""The topic that `penstock produce` writes to: one that exists, one that a program declares, or one that is guessed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.output import count_text, print_line, print_stderr
from penstock.errors import DeclarationError
from penstock.suggest import closest

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.capture.files.guess import GuessedSchema
    from penstock.flow.plan import Source
    from penstock.log import Log, Topic, TopicSettings


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What the options say about a topic that does not exist yet."""

    key: tuple[str, ...] = ()
    time: str | None = None
    partitions: int | None = None

    def settings(self) -> TopicSettings:
        from penstock.log import TopicSettings

        return TopicSettings(partitions=self.partitions or 1, key=self.key, time=self.time)

    def check(self, topic: Topic) -> None:
        """Refuse options that contradict a topic which exists."""
        found = topic.settings
        for option, wanted, stored in (
            ("--key", ",".join(self.key), ",".join(found.key)),
            ("--time", self.time, found.time),
            ("--partitions", self.partitions, found.partitions),
        ):
            if wanted and wanted != stored:
                raise DeclarationError(
                    f"topic '{topic.name}': it exists, and {option} cannot change it; "
                    f"it has {stored or 'none'}, and {wanted} was asked for",
                    hint=f"leave {option} out",
                )


def find_declared_topic(app: str, name: str, log_path: Path | None) -> tuple[Source, Path]:
    """The topic or table of this name as a program declares it, and the folder of the log that it is for.

    `app` is a file, and the name of an app in it where it declares several: `shop.py:orders`.
    """
    from penstock.app import load_app
    from penstock.flow.plan import Changelog
    from penstock.flow.plan import Topic as DeclaredTopic

    file, chosen = _split_app(app)
    try:
        loaded = load_app(file, name=chosen)
    except DeclarationError as error:
        if error.hint == "choose one with --app NAME":
            raise DeclarationError(error.message, hint=f"choose one of them: --app {file}:NAME") from None
        raise
    nodes = {known: rows.node for known, rows in loaded.named.items()}
    declared = {known: node for known, node in nodes.items() if isinstance(node, DeclaredTopic | Changelog)}
    if name not in declared:
        raise DeclarationError(
            f"{file}: app '{loaded.name}' does not declare topic '{name}'; it declares {', '.join(declared) or 'none'}",
            hint=closest(name, list(declared)),
        )
    return declared[name], log_path or _folder_of(loaded.log)


def create_declared_topic(log: Log, node: Source) -> Topic:
    """Open the topic as the app does when it starts: created as declared if it is missing, refused if it differs."""
    from penstock.engine.plan.inputs import open_or_create

    return log.topic(open_or_create(log, node).name)


def topics_in(folder: Path) -> list[str]:
    """The topics of a log; none if there is no log."""
    from penstock.log import Log
    from penstock.logs import log_exists

    if not log_exists(folder):
        return []
    with Log(folder, create=False) as log:
        return log.topics()


def _split_app(text: str) -> tuple[Path, str | None]:
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon and path.lower().endswith((".py", ".sql")) else (Path(text), None)


def _folder_of(log: str | Path) -> Path:
    from urllib.parse import unquote, urlsplit

    if isinstance(log, Path):
        return log
    parts = urlsplit(log)
    if parts.scheme != "file":
        raise DeclarationError(
            f"{log}: `penstock produce` writes to logs in a folder", hint="write to this log with its own tools"
        )
    return Path(unquote(parts.path))


def missing_topic_error(name: str, where: Path | str, known: list[str]) -> DeclarationError:
    """The topic does not exist: the three ways to create it."""
    near = closest(name, known)
    return DeclarationError(
        f"topic '{name}': it does not exist in {where}",
        hint=(f"{near} or " if near else "")
        + "create it: as a program declares it with --app shop.py, with a schema guessed from the data with --infer, "
        f'or by hand with: penstock topic create {name} --schema "id bigint, name string"',
    )


def confirm_guess(name: str, guessed: GuessedSchema, new: NewTopic, *, yes: bool, can_ask: bool) -> pa.Schema:
    """Show a guessed schema and ask whether to use it. The program ends unless the answer is yes."""
    from penstock.log import check_topic
    from penstock.schema.arrow import parse_schema

    schema = parse_schema(guessed.schema)
    check_topic(name, schema, new.settings())
    print_stderr(f"topic '{name}' does not exist; its schema, guessed from {count_text(guessed.records, 'row')}:")
    for line in schema_lines(schema):
        print_stderr(f"  {line}")
    for note in guessed.notes:
        print_stderr(f"note: {note}")
    if not yes:
        _confirm(name, schema, new, can_ask=can_ask)
    return schema


def schema_lines(schema: pa.Schema) -> list[str]:
    """The DDL of a schema, a line for each column."""
    import pyarrow as pa

    from penstock.schema.ddl import to_ddl

    columns = [to_ddl(pa.schema([field])) for field in schema]
    return [f"{column}," for column in columns[:-1]] + columns[-1:]


def create_command(name: str, schema: pa.Schema, new: NewTopic) -> str:
    """The command that creates a topic like this."""
    from penstock.schema.ddl import to_ddl

    words = ["penstock", "topic", "create", name, "--schema", to_ddl(schema)]
    words += ["--key", ",".join(new.key)] if new.key else []
    words += ["--time", new.time] if new.time else []
    words += ["--partitions", str(new.partitions)] if new.partitions else []
    return shlex.join(words)


def _confirm(name: str, schema: pa.Schema, new: NewTopic, *, can_ask: bool) -> None:
    """Ask, or print the command to run instead where nobody can answer. Ends the program unless the answer is yes."""
    if can_ask and sys.stdin.isatty():
        if typer.confirm(f"Create topic '{name}' like this?", err=True):
            return
    else:
        print_stderr("Nothing was stored. Run it again with --yes to accept this schema, or create the topic:")
    print_line(create_command(name, schema, new))
    raise typer.Exit(1)
