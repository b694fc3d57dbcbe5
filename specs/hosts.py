"""Generate the sections of `docs/hosts.md` from the data file of known clients and hosts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roundtrip.cli.host_config import HostFacts, Launch, all_hosts, snippet
from roundtrip.known_clients import Support
from specs.sections import with_section

__all__ = ["hosts_page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "hosts.md"

_SHOWN: Final = {Support.YES: "yes", Support.NO: "no", Support.DEPENDS: "depends", Support.UNKNOWN: "?"}
_FOLDER: Final = "/home/ada/cinema"
_STARTED: Final = Launch(
    "cinema",
    command=(
        f"{_FOLDER}/.venv/bin/python",
        *("-m", "roundtrip", "serve", "cinema.py", "--stdio", "--folder", _FOLDER),
    ),
    env={"ROUNDTRIP_KEY_FILE": f"{_FOLDER}/keys"},
)
_SERVED: Final = Launch("cinema", url="http://127.0.0.1:8000/mcp")


def hosts_page() -> str:
    """Return the page with its generated sections written again."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "hosts", _rows())
    return with_section(text, "texts for hosts", _texts())


def _rows() -> Iterator[str]:
    yield "| host | version | form | URL | model | roots | as of | beware |"
    yield "|---|---|---|---|---|---|---|---|"
    for host in all_hosts():
        if (known := host.known) is not None:
            kinds = (_SHOWN[one] for one in (known.form, known.url, known.sampling, known.roots))
            beware = ", ".join([*sorted(known.quirks), *([known.note] if known.note else [])])
            seen = known.sources[0]
            version = host.version or "?"
            yield f"| {host.title} | {version} | {' | '.join(kinds)} | [{seen.date}]({seen.url}) | {beware} |"


def _texts() -> Iterator[str]:
    for host in all_hosts():
        yield from (f"### {host.title}", "", f"`roundtrip host-config {host.name} cinema.py`. {host.place}", "")
        yield from _block(host, _STARTED)
        yield from (f"For an address:{f' {host.http_note}' if host.http_note else ''}", "")
        yield from _block(host, _SERVED)
        shown = ", ".join(f"[{source.date}]({source.url})" for source in host.sources)
        yield from (f"Sources: {shown}.", "")


def _block(host: HostFacts, launch: Launch) -> Iterator[str]:
    yield from ("```json" if host.json else "```text", snippet(host, launch), "```", "")
