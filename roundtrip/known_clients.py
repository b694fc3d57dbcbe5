"""Look up known clients by the name that they announce: what they can be asked, and what their declaration hides.

The facts are advice. Names can be forged, so no rule of safety may rest on them, and a client can be asked exactly what
it declares. The file `known_clients.toml` has a source and a date for each entry; it is read at the first look-up.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final

_DATA: Final = "known_clients.toml"
_RELEASE: Final = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,4})")
_PROXY: Final = " (via "
"""The text that `mcp-remote`, a proxy, adds to the name of its client."""
_MAX_NAME_CHARS: Final = 200


class Support(StrEnum):
    """Support of a client for one kind of question."""

    YES = "yes"
    NO = "no"
    DEPENDS = "depends"
    """Settings decide, or the program that uses a library."""
    UNKNOWN = "unknown"


class Quirk(StrEnum):
    """Behavior of a client that its declared capabilities do not tell."""

    DECLINES_UNSEEN = "declines-unseen"
    ACCEPTS_UNSEEN = "accepts-unseen"
    URL_UNSEEN = "url-unseen"
    CACHES_TOOLS = "caches-tools"

    @property
    def meaning(self) -> str:
        """Return the behavior in a sentence."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Quirk.DECLINES_UNSEEN: "In some of its settings it declines questions that its user never saw.",
    Quirk.ACCEPTS_UNSEEN: "In some of its settings it accepts questions that its user never saw.",
    Quirk.URL_UNSEEN: "It declares URL mode, and never shows the page.",
    Quirk.CACHES_TOOLS: "It keeps an old list of tools, also after a change.",
}


@dataclass(frozen=True, slots=True)
class ClientFact:
    """Source of the facts of an entry."""

    date: date
    url: str
    says: str


@dataclass(frozen=True, slots=True)
class KnownClient:
    """Facts about a client, by the name that it announces."""

    name: str
    """Its `clientInfo.name`; `*` at the end stands for any rest."""
    title: str = ""
    """The name by which its users know it."""
    versions: str = ""
    """The versions that the entry is about, as in PEP 440; empty for all."""
    revision: str | None = None
    """The newest protocol revision that it was seen to negotiate."""
    form: Support = Support.UNKNOWN
    url: Support = Support.UNKNOWN
    sampling: Support = Support.UNKNOWN
    roots: Support = Support.UNKNOWN
    tasks: Support = Support.UNKNOWN
    max_rounds: int | None = None
    """The rounds of questions after which it gives up a call of 2026-07-28; None if unknown."""
    quirks: frozenset[Quirk] = frozenset()
    note: str = ""
    sources: tuple[ClientFact, ...] = ()

    def fits(self, name: str, version: str | None) -> bool:
        """Return True if the entry is about this client."""
        is_named = name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name
        return is_named and (not self.versions or _in_range(version, self.versions))


def known_client(
    name: str, version: str | None = None, *, overrides: Mapping[str, KnownClient | None] | None = None
) -> KnownClient | None:
    """Return the facts about a client, or None if it is not known.

    Args:
        name: The name that it announces.
        version: The version that it announces. Entries for some versions only are skipped without a readable one.
        overrides: Facts that replace those of this package, by name; None forgets a client.
    """
    name = name[:_MAX_NAME_CHARS].partition(_PROXY)[0]
    if overrides and name in overrides:
        return overrides[name]
    return next((entry for entry in all_known_clients() if entry.fits(name, version)), None)


@cache
def all_known_clients() -> tuple[KnownClient, ...]:
    """Return all entries, in the order of the file."""
    return tuple(read_known_clients(files("roundtrip").joinpath(_DATA).read_text(encoding="utf-8")))


def read_known_clients(text: str) -> Iterable[KnownClient]:
    """Return the entries of a TOML file with tables `[[clients]]`.

    Raises:
        ValueError: An entry is invalid.
    """
    for number, entry in enumerate(tomllib.loads(text).get("clients", []), start=1):
        try:
            yield _entry_of(entry)
        except (KeyError, TypeError, ValueError) as error:
            where = f"client {entry['name']!r}" if "name" in entry else f"entry {number}"
            raise ValueError(f"{where} of the known clients is invalid: {error}") from error


def _entry_of(data: dict[str, Any]) -> KnownClient:
    unknown = data.keys() - {field.name for field in fields(KnownClient)}
    if unknown:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    if data.get("versions"):
        _specifiers(data["versions"])
    kinds = ("form", "url", "sampling", "roots", "tasks")
    supports: dict[str, Any] = {kind: Support(data.get(kind, Support.UNKNOWN)) for kind in kinds}
    sources = tuple(ClientFact(source["date"], source["url"], source["says"]) for source in data["sources"])
    if not sources or not all(type(source.date) is date for source in sources):
        raise ValueError("it must have sources, each with a date")
    quirks = frozenset(map(Quirk, data.get("quirks", ())))
    facts: dict[str, Any] = {**data, **supports, "quirks": quirks, "sources": sources}
    return KnownClient(**facts)


def _in_range(version: str | None, versions: str) -> bool:
    """Return True if a version, of which only the leading numbers count, is one of these."""
    found = _RELEASE.match(version or "")
    return found is not None and found[1] in _specifiers(versions)


@cache
def _specifiers(versions: str) -> Any:
    from packaging.specifiers import SpecifierSet  # only for the few clients whose versions differ

    return SpecifierSet(versions)
