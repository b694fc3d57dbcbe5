"""Generate the table in `docs/clients.md` from the known-clients data file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from roundtrip.known_clients import KnownClient, Quirk, Support, all_known_clients
from specs.sections import with_section

__all__ = ["clients_page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "clients.md"

_SHOWN: Final = {Support.YES: "yes", Support.NO: "no", Support.DEPENDS: "depends", Support.UNKNOWN: "?"}


def clients_page() -> str:
    """Return the page with regenerated sections."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "known clients", _client_rows())
    return with_section(text, "quirks", _quirk_rows())


def _client_rows() -> Iterator[str]:
    yield "| client | name it announces | form | URL | model | roots | tasks | rounds | beware | sources |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for client in sorted(all_known_clients(), key=lambda client: client.title.casefold()):
        yield f"| {' | '.join(_cells(client))} |"


def _cells(client: KnownClient) -> Iterator[str]:
    yield client.title
    yield f"`{client.name}`" + (f" {client.versions.replace(',', ', ')}" if client.versions else "")
    yield from (_SHOWN[kind] for kind in (client.form, client.url, client.sampling, client.roots, client.tasks))
    yield "?" if client.max_rounds is None else str(client.max_rounds)
    yield ", ".join([*sorted(client.quirks), *([client.note] if client.note else [])])
    yield ", ".join(f"[{source.date}]({source.url})" for source in client.sources)


def _quirk_rows() -> Iterator[str]:
    yield from ("| word | means |", "|---|---|")
    yield from (f"| {quirk} | {quirk.meaning} |" for quirk in sorted(Quirk))
