"""Every code block of README.md and docs/ is run, so that no document shows what does not work.

- `python` blocks of one document run in order, in one namespace.
- `console` blocks are `$ command` lines, each followed by the output it must give. `...` inside a line stands for any
  text, and alone on a line for any number of lines. Without output lines, the command only has to succeed.
- `sh` blocks are run by `bash -e`.
- `text` and unlabelled blocks, and blocks of other languages, are not run.
- `<!-- not run: reason -->` on the line before a block leaves it out. `<!-- exits 1 -->` there says with which status
  the last command of a console block ends, for a document that shows an error.

A document runs in a temporary directory and with a `__main__` of its own; documents share a process, so that they share
a JVM. By hand: `python tests/test_docs.py README.md`, which runs it in the current directory.

What documents link to is checked as well: inside docs/ by the site's build in `make check`, elsewhere here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<label>[^\s`]*)")
NOT_RUN = re.compile(r"^\s*<!-- not run:(?P<reason>.*)-->\s*$")
EXITS = re.compile(r"^\s*<!-- exits (?P<status>\d+) -->\s*$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Spark runs Python where its JVM was started, and this document gives it relative paths.
OWN_PROCESS = {"spark.md"}
MISNAMED = {"py", "python3", "pycon", "ipython", "bash", "shell", "zsh", "shell-session", "shellsession"}


class DocumentError(Exception):
    """A document is wrong: at which line, and how."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is the number of its first line of code; `note` is the line before the fence."""

    label: str
    code: str
    line: int
    note: str


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output lines shown under it."""

    text: str
    line: int
    output: list[str]


# --- Reading a document


def blocks_of(document: str) -> Iterator[Block]:
    """All fenced blocks, in order."""
    lines = document.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != fence["ticks"]:
            number += 1
        if number == len(lines):
            raise DocumentError(start, "this block is never closed")
        code = "\n".join(line.removeprefix(fence["indent"]) for line in lines[start:number])
        note = lines[start - 2] if start >= 2 else ""
        yield Block(fence["label"], code + "\n", start + 1, note)
        number += 1


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block. A command that ends in a backslash goes on in the next line."""
    commands: list[Command] = []
    continued = False
    for line, text in enumerate(block.code.splitlines(), start=block.line):
        if continued:
            commands[-1] = Command(f"{commands[-1].text}\n{text}", commands[-1].line, [])
            continued = text.endswith("\\")
        elif text.startswith("$ "):
            commands.append(Command(text[2:], line, []))
            continued = text.endswith("\\")
        elif commands:
            commands[-1].output.append(text)
        elif text.strip():
            raise DocumentError(line, "a console block starts with a line '$ command'")
    return commands


def is_left_out(block: Block) -> bool:
    """Whether the line before says so; only with a reason."""
    note = NOT_RUN.match(block.note)
    if note is not None and not note["reason"].strip():
        raise DocumentError(block.line - 2, "'not run' needs a reason: <!-- not run: why -->")
    return note is not None


def output_matches(expected: list[str], actual: str) -> bool:
    """Whether a command's output is the one shown. Spaces at line ends and empty lines at the end do not count."""
    pattern = ""
    for line in "\n".join(expected).rstrip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*".join(re.escape(part) for part in line.rstrip().split("...")) + "\n"
    lines = [line.rstrip() for line in actual.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


# --- Running it


def run_document(path: Path) -> None:
    """Runs the blocks of one document in the current directory; raises DocumentError at the first that fails."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if is_left_out(block):
            continue
        if block.label in MISNAMED:
            raise DocumentError(block.line - 1, f"'{block.label}' blocks are not run; use python, console, sh or text")
        if block.label == "python":
            run_python(block, path, main)
        elif block.label == "console":
            run_console(block)
        elif block.label == "sh":
            run_sh(block)


def run_python(block: Block, path: Path, main: ModuleType) -> None:
    # The empty lines in front give every error the document's own line numbers.
    try:
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), main.__dict__)
    except BaseException as error:  # noqa: BLE001 - a block that calls sys.exit has failed as well
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines = [error.lineno]
        shown = "".join(traceback.format_exception(error))
        raise DocumentError((lines and lines[0]) or block.line, f"this python block failed\n{shown}") from None


def run_console(block: Block) -> None:
    commands = commands_of(block)
    exits = EXITS.match(block.note)
    for command in commands:
        status = int(exits["status"]) if exits and command is commands[-1] else 0
        ended = bash("-c", command.text)
        if ended.returncode != status:
            raise DocumentError(
                command.line, f"$ {command.text}\nended with status {ended.returncode}, not {status}:\n{ended.stdout}"
            )
        shown = "\n".join(command.output).strip()
        if shown and not output_matches(command.output, ended.stdout):
            raise DocumentError(
                command.line, f"$ {command.text}\n--- the document shows\n{shown}\n--- it printed\n{ended.stdout}"
            )


def run_sh(block: Block) -> None:
    ended = bash("-e", "-c", block.code)
    if ended.returncode != 0:
        raise DocumentError(block.line, f"this sh block ended with status {ended.returncode}:\n{ended.stdout}")


def bash(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def environment() -> dict[str, str]:
    """This environment with our own commands first, no settings of Penstock, and a plain terminal of 120 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept | {"PATH": path, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


def check_document(document: Path) -> str | None:
    """Run a document in the current directory: None, or the file, the line and what is wrong there."""
    try:
        run_document(document)
    except DocumentError as error:
        name = document.relative_to(ROOT) if document.is_relative_to(ROOT) else document.name
        return f"{name}:{error.line}: {error}"
    return None


# --- A process that runs one document after the other


class DocumentProcess:
    """Sends a document and a directory as a line of JSON, and receives what is wrong."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def check(self, document: Path, directory: Path) -> str | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(document), str(directory)]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process ended with {self._process.wait()} while it ran {document.name}"
        problem: str | None = json.loads(answer)
        return problem

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def serve_documents() -> None:
    """Run the documents that standard input names, and answer each on standard output. What they print is dropped."""
    answers = os.fdopen(os.dup(1), "w")
    for request in sys.stdin:
        document, directory = json.loads(request)
        with isolated(Path(directory)):
            problem = check_document(Path(document))
        print(json.dumps(problem), file=answers, flush=True)


@contextmanager
def isolated(directory: Path) -> Iterator[None]:
    """A place in which a document leaves no variables or output to the next one."""
    variables, main = dict(os.environ), sys.modules["__main__"]
    with chdir(directory), tempfile.TemporaryFile() as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        yield
    os.environ.clear()
    os.environ.update(variables)
    sys.modules["__main__"] = main


@pytest.fixture(scope="module")
def process() -> Iterator[DocumentProcess]:
    process = DocumentProcess()
    yield process
    process.close()


# --- The tests


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_the_document_runs(document: Path, tmp_path: Path, process: DocumentProcess) -> None:
    if document.name in OWN_PROCESS:
        with chdir(tmp_path):
            process = DocumentProcess()
    problem = process.check(document, tmp_path)
    if document.name in OWN_PROCESS:
        process.close()
    if problem is not None:
        pytest.fail(problem, pytrace=False)


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")), ids=lambda path: path.name)
def test_what_the_document_links_to_exists(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    relative = [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")]
    assert [target for target in relative if not (ROOT / target).exists()] == []


RIGHT = """
```python
greeting = "hello"
```
<!-- not run: there is no such thing -->
```console
$ git clone nothing
```
- in a list:
  ```python
  from pathlib import Path
  Path("greeting").write_text(greeting)
  ```
```console
$ cat greeting
hello
$ printf 'one\\ntwo\\nthree 3\\n'
...
three ...
$ true \\
  && true
```
<!-- exits 3 -->
```console
$ echo no; exit 3
no
```
```sh
test -e greeting
```
```text
neither this
```
"""


@pytest.mark.xdist_group("docs")
def test_a_right_document_runs_its_blocks_in_order_in_one_directory(tmp_path: Path, process: DocumentProcess) -> None:
    document = tmp_path / "right.md"
    document.write_text(RIGHT)
    assert process.check(document, tmp_path) is None


@pytest.mark.xdist_group("docs")
def test_a_document_sees_nothing_of_the_one_before(tmp_path: Path, process: DocumentProcess) -> None:
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text("```python\nimport os, pathlib\nos.environ['SEEN'] = 'yes'\nos.mkdir('shop')\n```\n")
    second.write_text(
        "```python\nimport os\nassert 'SEEN' not in os.environ\n"
        "assert 'pathlib' not in globals()\nassert not os.path.exists('shop')\n```\n"
    )
    for document in (first, second):
        (directory := tmp_path / document.stem).mkdir()
        assert process.check(document, directory) is None


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize(
    ("document", "line", "what"),
    [
        ("```python\nx = 1\n\nassert x == 2\n```\n", 4, "AssertionError"),
        ("```python\nx = 1\nx = = 2\n```\n", 3, "SyntaxError"),
        ("```python\nimport sys\nsys.exit(0)\n```\n", 3, "SystemExit"),
        ("\n```console\n$ true\n$ echo this\nthat\n```\n", 4, "it printed\nthis"),
        ("```console\n$ false\n```\n", 2, "status 1, not 0"),
        ("```console\n$ echo a; false\na\n```\n", 2, "status 1, not 0"),
        ("```console\necho a\n```\n", 2, "$ command"),
        ("```sh\nfalse\ntrue\n```\n", 2, "status 1"),
        ("<!-- not run: -->\n```sh\ntrue\n```\n", 1, "needs a reason"),
        ("```bash\ntrue\n```\n", 1, "use python, console, sh or text"),
        ("```python\nx = 1\n", 1, "never closed"),
    ],
    ids=lambda value: "" if isinstance(value, str) and "```" in value else str(value),
)
def test_a_wrong_block_is_reported_with_its_file_and_line(
    document: str, line: int, what: str, tmp_path: Path, process: DocumentProcess
) -> None:
    path = tmp_path / "wrong.md"
    path.write_text(document)
    problem = process.check(path, tmp_path)
    assert problem is not None
    assert f"wrong.md:{line}: " in problem
    assert what in problem


@pytest.mark.parametrize(
    ("expected", "actual", "matches"),
    [
        (["a", "b"], "a  \nb\n\n", True),
        (["a", "...", "d"], "a\nb\nc\nd\n", True),
        (["a", "...", "d"], "a\nd\n", True),
        (["a ... c"], "a b c\n", True),
        (["a ... c"], "a b\nb c\n", False),
        (["a"], "a\nb\n", False),
        (["a", "b"], "a\n", False),
        (["a.c"], "abc\n", False),
    ],
)
def test_dots_stand_for_text_or_for_lines(expected: list[str], actual: str, matches: bool) -> None:
    assert output_matches(expected, actual) is matches


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve_documents()
    else:
        sys.exit(check_document(Path(sys.argv[1]).resolve()))
