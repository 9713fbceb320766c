"""The part of the docs site that is generated from the program: a Sphinx extension, used by docs/conf.py.

A page says with a comment what is put in its place; readers of the Markdown file do not see the comment:

    <!-- generated: command topic create -->    usage, help and options of a command
    <!-- generated: other commands -->          the same, with a heading, for commands that have no such comment
    <!-- generated: names penstock.log -->      the public names of `penstock` that are defined below a module
    <!-- generated: package penstock.testing -->  everything that a package names in `__all__`
    <!-- generated: errors -->                  every class of penstock/errors.py, as a table and with its docstring

Docstrings are Markdown, as the code is written; Sphinx's autodoc expects reStructuredText, so they are translated.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import penstock
from penstock import errors

COMMENT = re.compile(r"^<!-- generated: (?P<what>\w+)(?: (?P<argument>[^>]*?))? -->$", re.MULTILINE)
COMMANDS_PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"

Command = Any  # typer has its own copy of click, whose classes are not public


def setup(sphinx: Any) -> dict[str, Any]:
    """Called by Sphinx when it loads the extension."""
    sphinx.connect("source-read", _fill_in)
    sphinx.connect("autodoc-process-docstring", _translate_docstring)
    return {"version": penstock.__version__, "parallel_read_safe": True, "parallel_write_safe": True}


def _fill_in(sphinx: Any, page: str, source: list[str]) -> None:
    source[0] = COMMENT.sub(lambda comment: generate(comment["what"], comment["argument"] or ""), source[0])


def generate(what: str, argument: str) -> str:
    """The Markdown that takes the place of one comment."""
    if what == "command":
        return command_entry(argument)
    if what == "other" and argument == "commands":
        entries = [f"### penstock {name}\n\n{command_entry(name)}" for name in other_commands()]
        return "\n".join(["## More commands\n", *entries]) if entries else ""
    if what == "names":
        return autodoc_entries(public_names(argument))
    if what == "package":
        return autodoc_entries([f"{argument}.{name}" for name in import_module(argument).__all__])
    if what == "errors":
        return error_entries()
    raise ValueError(f"'{what} {argument}' cannot be generated; see tools/docs_reference.py")


# --- Commands


def commands() -> dict[str, Command]:
    """All commands by their words: `run`, `topic create`."""
    from typer.main import get_command

    from penstock.cli import app

    return dict(_leaves(get_command(app), ()))


def _leaves(command: Command, words: tuple[str, ...]) -> Iterator[tuple[str, Command]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield " ".join(words), command
        return
    for name, subcommand in subcommands.items():
        if not getattr(subcommand, "hidden", False):
            yield from _leaves(subcommand, (*words, name))


def other_commands() -> list[str]:
    """The commands that the page of commands does not show in a place of their own."""
    shown = {found["argument"] for found in COMMENT.finditer(COMMANDS_PAGE.read_text("utf-8"))}
    return [name for name in commands() if name not in shown]


def command_entry(name: str) -> str:
    """What a command is for, how it is called, and its arguments and options."""
    command = commands().get(name)
    if command is None:
        raise ValueError(f"the page of commands shows 'penstock {name}', which does not exist")
    arguments = [parameter for parameter in command.params if not parameter.opts[0].startswith("-")]
    usage = " ".join(["penstock", name, *(_argument_text(argument) for argument in arguments), "[OPTIONS]"])
    rows = [_table_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    table = ["| argument or option | what it does |", "|---|---|", *rows]
    return "\n\n".join([inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```", "\n".join(table)]) + "\n"


def _argument_text(argument: Any) -> str:
    text = argument.metavar or argument.name.upper()
    if argument.nargs == -1:
        text += "..."
    return text if argument.required else f"[{text}]"


def _table_row(parameter: Any) -> str:
    if parameter.opts[0].startswith("-"):
        name = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
        if not getattr(parameter, "is_flag", False):
            name += f" `{_value_text(parameter)}`"
    else:
        name = f"`{_argument_text(parameter)}`"
    described = [parameter.help or ""]
    if parameter.default not in (None, False, ()) and not callable(parameter.default):
        described.append(f"Default: `{getattr(parameter.default, 'value', parameter.default)}`.")
    if parameter.envvar:
        described.append(f"Also from the variable `{parameter.envvar}`.")
    return f"| {_cell(name)} | {_cell(' '.join(described))} |"


def _value_text(parameter: Any) -> str:
    choices = getattr(getattr(parameter.type_descriptor, "annotation", None), "__members__", None)
    if parameter.metavar or not choices:
        return parameter.metavar or parameter.name.upper()
    return "|".join(str(choice.value) for choice in choices.values())


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


# --- Names of the package


def public_names(modules: str) -> list[str]:
    """The public names of `penstock` that are defined in one of these modules or below it."""
    wanted = tuple(modules.split())
    return [
        f"penstock.{name}"
        for name in penstock.__all__
        if not name.startswith("_")
        and any(f"{getattr(penstock, name).__module__}.".startswith(f"{module}.") for module in wanted)
    ]


def autodoc_entries(names: list[str]) -> str:
    """Entries for classes and functions, made by Sphinx's autodoc. Aliases of types are left out."""
    lines = []
    for name in names:
        module, _, short = name.rpartition(".")
        found = getattr(import_module(module), short)
        if inspect.isclass(found):
            lines += [
                f".. autoclass:: {name}",
                "   :members:",
                "   :inherited-members: BaseException,tuple,Protocol",
                "",
            ]
        elif inspect.isfunction(found):
            lines += [f".. autofunction:: {name}", ""]
    return "\n".join(["```{eval-rst}", *lines, "```"])


# --- Errors


def error_classes() -> list[type[errors.PenstockError]]:
    """Every class of error, in the order of the file."""
    return [
        found
        for found in vars(errors).values()
        if inspect.isclass(found) and issubclass(found, errors.PenstockError) and found.__module__ == errors.__name__
    ]


def error_entries() -> str:
    """A table of all errors with the first sentence of each, then each in full."""
    table = ["| error | what to do |", "|---|---|"]
    table += [f"| [`{error.__name__}`](#{error.__name__.lower()}) | {_summary(error)} |" for error in error_classes()]
    entries = [
        f"({error.__name__.lower()})=\n## `{error.__name__}`\n\n{_lineage(error)}{inspect.getdoc(error)}\n"
        for error in error_classes()
    ]
    return "\n".join(table) + "\n\n" + "\n".join(entries)


def _summary(error: type) -> str:
    return (inspect.getdoc(error) or "").split("\n\n")[0].replace("\n", " ")


def _lineage(error: type) -> str:
    parent = error.__bases__[0]
    return f"A `{parent.__name__}`. " if parent not in (Exception, errors.PenstockError) else ""


# --- Docstrings


def _translate_docstring(sphinx: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured_text(lines)


def to_restructured_text(lines: list[str]) -> list[str]:
    """A docstring in the little Markdown that the code uses (code, lists, indented blocks) as reStructuredText."""
    translated: list[str] = []
    in_list = in_code = False
    for number, line in enumerate(lines):
        starts_block = number > 0 and not lines[number - 1].strip()
        if line.startswith("- "):
            in_list = True
            if translated and translated[-1].strip() and not translated[-1].startswith(("- ", "  ")):
                translated.append("")
        elif line.strip() and not line.startswith(" "):
            in_list = in_code = False
        if line.startswith("    ") and starts_block and not in_list and not in_code:
            in_code = True
            translated += [".. code-block:: python", ""]
        translated.append(line if in_code else _inline(line))
    return translated


def _inline(line: str) -> str:
    parts = re.split(r"(`[^`]+`|(?<!\S)\*[^\s*][^*]*\*(?![\w*]))", line)
    return "".join(f"`{part}`" if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    is_emphasis = re.fullmatch(r"\*[^\s*][^*]*\*", text)
    return text if is_emphasis else re.sub(r"([*|]|_(?=\W|$))", r"\\\1", text)
