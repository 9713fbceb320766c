"""Modules by URL scheme, built in or registered by other packages through entry points. Loaded on first use.

An entry point names a scheme and a module: `[project.entry-points."penstock.sources"]`,
`mongodb = "penstock_mongodb.source"`. Which functions a module must have depends on the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from urllib.parse import urlsplit

from penstock.errors import DeclarationError
from penstock.secrets import masked_url
from penstock.suggest import closest

OWN_PACKAGE = "penstock"


@dataclass(slots=True)
class Plugins:
    """The modules for one kind of URL. `functions` names what every module of the group must define."""

    kind: str  # "source"
    group: str  # "penstock.sources"
    built_in: Mapping[str, str]
    functions: Sequence[str]
    example: str  # a URL, for hints
    _entries: dict[str, list[EntryPoint]] | None = field(default=None, init=False, repr=False)

    def schemes(self) -> list[str]:
        """All known schemes, including those whose package may turn out to be broken."""
        return sorted(self._entry_points())

    def module(self, url: object, *, where: str) -> ModuleType:
        """The module for a URL, loaded. Error messages begin with `where`: the option or argument that held the URL."""
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
        entries = self._entry_points().get(scheme)
        if entries is None:
            raise self._unknown_scheme_error(url, scheme, where)
        if len(entries) > 1:
            raise DeclarationError(
                f"{where}: several packages bring the {self.kind} '{scheme}:': "
                + ", ".join(_package_of(entry) for entry in entries),
                hint="uninstall all but one of them",
            )
        return self._load(entries[0], where)

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """Entry points by scheme. Installed packages do not change while a process runs, so this looks them up once."""
        if self._entries is None:
            entries = {name: [EntryPoint(name, module, OWN_PACKAGE)] for name, module in self.built_in.items()}
            for entry in entry_points(group=self.group):
                entries.setdefault(entry.name, []).append(entry)
            self._entries = entries
        return self._entries

    def _load(self, entry: EntryPoint, where: str) -> ModuleType:
        description = f"the {self.kind} '{entry.name}:' of {_package_of(entry)}"
        try:
            module = entry.load()
        except Exception as error:  # importing a third-party module can raise anything
            raise DeclarationError(
                f"{where}: {description} cannot be loaded; {type(error).__name__}: {error}",
                hint=f"see that {entry.value} can be imported, or uninstall the package",
            ) from error
        missing = [name for name in self.functions if not callable(getattr(module, name, None))]
        if not isinstance(module, ModuleType) or missing:
            raise DeclarationError(
                f"{where}: {description} does not work with this version of Penstock; "
                f"{entry.value} has no function {', '.join(missing) or 'at all: it is not a module'}",
                hint=f"a module of the group '{self.group}' has the functions {', '.join(self.functions)}",
            )
        return module

    def _unknown_scheme_error(self, url: object, scheme: str, where: str) -> DeclarationError:
        shown = masked_url(url) if isinstance(url, str) else url
        known = self.schemes()
        suggestion = closest(scheme, known) if scheme else None
        available = f"there is {', '.join(f'{name}:' for name in known)}, as in '{self.example}'"
        if scheme and isinstance(url, str) and "://" in url:
            hint = f"{suggestion or available}; others come with packages that have an entry point in '{self.group}'"
            return DeclarationError(f"{where}: there is no {self.kind} for '{scheme}:'; found {shown!r}", hint=hint)
        return DeclarationError(f"{where}: a {self.kind} is a URL; found {shown!r}", hint=suggestion or available)


def _package_of(entry: EntryPoint) -> str:
    if entry.group == OWN_PACKAGE:
        return "penstock itself"
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
