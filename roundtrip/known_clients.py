"""Known clients: what each client can be asked, and what its declared capabilities do not reveal.

Clients are looked up by the name that they announce. A name can be forged, so the facts are only advice. No security
rule may depend on them: what a client declares decides how the server asks it. The file `known_clients.toml` is read at
the first lookup, and has sources with dates for each entry. An entry is as old as its newest source.
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
_PROXY_SEPARATOR: Final = " (via "
"""Text that the proxy `mcp-remote` appends to its client's name."""
_MAX_NAME_CHARS: Final = 200

KINDS: Final = ("form", "url", "sampling", "roots", "tasks", "apps")
"""The facts whose value is a `Support`."""
STALE_DAYS: Final = 180
"""Age in days after which an entry's facts may no longer be true."""


class Support(StrEnum):
    """A client's support for one kind of question."""

    YES = "yes"
    NO = "no"
    DEPENDS = "depends"
    """The support depends on the client's settings or, for a library, on the program that uses it."""
    UNKNOWN = "unknown"


class Quirk(StrEnum):
    """Client behavior that the declared capabilities do not reveal."""

    DECLINES_UNSEEN = "declines-unseen"
    ACCEPTS_UNSEEN = "accepts-unseen"
    URL_UNSEEN = "url-unseen"
    CACHES_TOOLS = "caches-tools"

    @property
    def meaning(self) -> str:
        """Return a sentence that describes the behavior."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Quirk.DECLINES_UNSEEN: "With some settings, it declines questions that its user never saw.",
    Quirk.ACCEPTS_UNSEEN: "With some settings, it accepts questions that its user never saw.",
    Quirk.URL_UNSEEN: "It declares URL mode but never shows the page.",
    Quirk.CACHES_TOOLS: "It keeps an old tool list even after the list has changed.",
}


@dataclass(frozen=True, slots=True)
class ClientFact:
    """Source for an entry's facts."""

    date: date
    url: str
    says: str


@dataclass(frozen=True, slots=True)
class KnownClient:
    """Facts about a client, found by the name that the client announces."""

    name: str
    """The client's `clientInfo.name`. A `*` at the end matches any text."""
    title: str = ""
    """The name by which users know the client."""
    versions: str = ""
    """PEP 440 specifier of the versions to which the entry applies; empty for all versions."""
    revision: str | None = None
    """Newest protocol revision that the client was observed to negotiate."""
    form: Support = Support.UNKNOWN
    url: Support = Support.UNKNOWN
    sampling: Support = Support.UNKNOWN
    roots: Support = Support.UNKNOWN
    tasks: Support = Support.UNKNOWN
    apps: Support = Support.UNKNOWN
    """Support for MCP Apps, which can ask inside the conversation."""
    max_rounds: int | None = None
    """Number of question rounds after which the client abandons a call in revision 2026-07-28; None if unknown."""
    quirks: frozenset[Quirk] = frozenset()
    note: str = ""
    sources: tuple[ClientFact, ...] = ()

    @property
    def as_of(self) -> date | None:
        """Return the newest source's date; None without sources."""
        return max((source.date for source in self.sources), default=None)

    def age_days(self, today: date) -> int | None:
        """Return the number of days since the newest source; None without sources."""
        return None if self.as_of is None else max((today - self.as_of).days, 0)

    def fits(self, name: str, version: str | None) -> bool:
        """Return True if the entry applies to this client."""
        is_named = name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name
        return is_named and (not self.versions or _in_range(version, self.versions))


def known_client(
    name: str, version: str | None = None, *, overrides: Mapping[str, KnownClient | None] | None = None
) -> KnownClient | None:
    """Return the facts about a client; None for an unknown client.

    Args:
        name: The name that the client announces.
        version: The version that the client announces. Without a valid version, only entries for all versions apply.
        overrides: Facts that replace the built-in facts, keyed by client name; None makes a client unknown.
    """
    name = name[:_MAX_NAME_CHARS].partition(_PROXY_SEPARATOR)[0]
    if overrides and name in overrides:
        return overrides[name]
    return next((entry for entry in all_known_clients() if entry.fits(name, version)), None)


@cache
def all_known_clients() -> tuple[KnownClient, ...]:
    """Return all entries, in file order."""
    return tuple(read_known_clients(files("roundtrip").joinpath(_DATA).read_text(encoding="utf-8")))


def read_known_clients(text: str) -> Iterable[KnownClient]:
    """Yield the entries in a TOML text that has `[[clients]]` tables.

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
    supports: dict[str, Any] = {kind: Support(data.get(kind, Support.UNKNOWN)) for kind in KINDS}
    sources = tuple(ClientFact(source["date"], source["url"], source["says"]) for source in data["sources"])
    if not sources or not all(type(source.date) is date for source in sources):
        raise ValueError("it must have sources, each with a date")
    quirks = frozenset(map(Quirk, data.get("quirks", ())))
    facts: dict[str, Any] = {**data, **supports, "quirks": quirks, "sources": sources}
    return KnownClient(**facts)


def _in_range(version: str | None, versions: str) -> bool:
    """Return True if a version is in the range. Only the leading numbers of the version are compared."""
    release = _RELEASE.match(version or "")
    return release is not None and release[1] in _specifiers(versions)


@cache
def _specifiers(versions: str) -> Any:
    from packaging.specifiers import SpecifierSet  # lazy: only clients whose versions differ need this

    return SpecifierSet(versions)
