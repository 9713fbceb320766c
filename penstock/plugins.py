"""Modules by URL scheme: built in, or brought by other packages through entry points. Loaded when first needed.

An entry point of a group names a scheme and a module: `[project.entry-points."penstock.sources"]`,
`mongodb = "penstock_mongodb.source"`. What a module must have is up to the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from urllib.parse import urlsplit

from penstock.errors import DeclarationError

OURSELVES = "penstock"


@dataclass(slots=True)
class Plugins:
    """What there is for one kind of URL. `functions` are the names that a module of the group must have."""

    kind: str  # "source"
    group: str  # "penstock.sources"
    built_in: Mapping[str, str]
    functions: Sequence[str]
    example: str  # a URL, for hints
    _found: dict[str, list[EntryPoint]] | None = field(default=None, init=False, repr=False)

    def schemes(self) -> list[str]:
        """All schemes that are known, also those whose package may turn out to be broken."""
        return sorted(self._declared())

    def module(self, url: object, *, where: str) -> ModuleType:
        """The module for a URL, loaded. `where` begins the messages: which option or argument the URL came from."""
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        declared = self._declared().get(scheme)
        if declared is None:
            raise self._unknown(url, scheme, where)
        if len(declared) > 1:
            raise DeclarationError(
                f"{where}: several packages bring the {self.kind} '{scheme}:': "
                + ", ".join(_package_of(each) for each in declared),
                hint="uninstall all but one of them",
            )
        return self._load(declared[0], where)

    def _declared(self) -> dict[str, list[EntryPoint]]:
        """Entry points by scheme. What is installed does not change while a process runs: it is looked up once."""
        if self._found is None:
            found = {name: [EntryPoint(name, module, OURSELVES)] for name, module in self.built_in.items()}
            for entry in entry_points(group=self.group):
                found.setdefault(entry.name, []).append(entry)
            self._found = found
        return self._found

    def _load(self, entry: EntryPoint, where: str) -> ModuleType:
        described = f"the {self.kind} '{entry.name}:' of {_package_of(entry)}"
        try:
            module = entry.load()
        except Exception as error:  # whatever a foreign module raises when it is imported
            raise DeclarationError(
                f"{where}: {described} cannot be loaded; {type(error).__name__}: {error}",
                hint=f"see that {entry.value} can be imported, or uninstall the package",
            ) from error
        missing = [name for name in self.functions if not callable(getattr(module, name, None))]
        if not isinstance(module, ModuleType) or missing:
            raise DeclarationError(
                f"{where}: {described} does not work with this version of Penstock; "
                f"{entry.value} has no function {', '.join(missing) or 'at all: it is not a module'}",
                hint=f"a module of the group '{self.group}' has the functions {', '.join(self.functions)}",
            )
        return module

    def _unknown(self, url: object, scheme: str, where: str) -> DeclarationError:
        from penstock.log import closest  # with all that reads types: needed only here

        known = self.schemes()
        near = closest(scheme, known) if scheme else None
        there = f"there is {', '.join(f'{name}:' for name in known)}, as in '{self.example}'"
        if scheme and isinstance(url, str) and "://" in url:
            hint = f"{near or there}; others come with packages that have an entry point in '{self.group}'"
            return DeclarationError(f"{where}: there is no {self.kind} for '{scheme}:'; found {url!r}", hint=hint)
        return DeclarationError(f"{where}: a {self.kind} is a URL; found {url!r}", hint=near or there)


def _package_of(entry: EntryPoint) -> str:
    if entry.group == OURSELVES:
        return "penstock itself"
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
