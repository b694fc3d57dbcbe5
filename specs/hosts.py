"""Generate the table in `docs/hosts.md` from the known-clients data file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roundtrip.known_clients import Support, known_client
from specs.sections import with_section

__all__ = ["hosts_page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "hosts.md"

_HOSTS: Final = (
    ("Claude Code", "claude-code", "2.1.332"),
    ("Claude Desktop", "claude-ai", ""),
    ("Cursor", "cursor-vscode", ""),
    ("VS Code with GitHub Copilot", "Visual Studio Code", "1.139.1"),
    ("MCP Inspector", "inspector-cli", "2.12.0"),
)
"""For each host: its title, the name that it announces, and the version that its sources describe."""
_LATEST: Final = "9999"
_SHOWN: Final = {Support.YES: "yes", Support.NO: "no", Support.DEPENDS: "depends", Support.UNKNOWN: "?"}


def hosts_page() -> str:
    """Return the page with a regenerated section."""
    return with_section(PAGE.read_text(encoding="utf-8"), "hosts", _rows())


def _rows() -> Iterator[str]:
    yield "| host | version | form | URL | apps | model | roots | as of | beware |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for title, name, version in _HOSTS:
        known = known_client(name, version or _LATEST)
        if known is None:
            raise ValueError(f"the data file has no client {name!r}")
        kinds = (_SHOWN[one] for one in (known.form, known.url, known.apps, known.sampling, known.roots))
        beware = ", ".join([*sorted(known.quirks), *([known.note] if known.note else [])])
        seen = known.sources[0]
        yield f"| {title} | {version or '?'} | {' | '.join(kinds)} | [{seen.date}]({seen.url}) | {beware} |"
