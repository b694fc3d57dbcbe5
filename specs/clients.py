"""Generate the table in `docs/clients.md` from the known-clients data file.

`python -m specs.clients` lists the entries whose newest source is old. It is not a test, because it depends on the day.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from roundtrip.known_clients import STALE_DAYS, KnownClient, Quirk, Support, all_known_clients
from specs.sections import with_section

__all__ = ["clients_page", "stale_entries"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "clients.md"

_SHOWN: Final = {Support.YES: "yes", Support.NO: "no", Support.DEPENDS: "depends", Support.UNKNOWN: "?"}


def clients_page() -> str:
    """Return the page with regenerated sections."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "known clients", _client_rows())
    return with_section(text, "quirks", _quirk_rows())


def stale_entries(today: date) -> Iterator[str]:
    """Yield a line for each entry that is too old, beginning with the oldest."""
    ages = [(client.age_days(today) or 0, client) for client in all_known_clients()]
    for age, client in sorted(ages, key=lambda pair: -pair[0]):
        if age > STALE_DAYS:
            yield f"{client.as_of}, {age} days ago: {client.title} ({client.name} {client.versions}".rstrip() + ")"


def _client_rows() -> Iterator[str]:
    kinds = "form | URL | apps | model | roots | tasks"
    yield f"| client | name it announces | {kinds} | rounds | as of | beware | sources |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for client in sorted(all_known_clients(), key=lambda client: client.title.casefold()):
        yield f"| {' | '.join(_cells(client))} |"


def _cells(client: KnownClient) -> Iterator[str]:
    yield client.title
    yield f"`{client.name}`" + (f" {client.versions.replace(',', ', ')}" if client.versions else "")
    kinds = (client.form, client.url, client.apps, client.sampling, client.roots, client.tasks)
    yield from (_SHOWN[kind] for kind in kinds)
    yield "?" if client.max_rounds is None else str(client.max_rounds)
    yield str(client.as_of)
    yield ", ".join([*sorted(client.quirks), *([client.note] if client.note else [])])
    yield ", ".join(f"[{source.date}]({source.url})" for source in client.sources)


def _quirk_rows() -> Iterator[str]:
    yield from ("| word | means |", "|---|---|")
    yield from (f"| {quirk} | {quirk.meaning} |" for quirk in sorted(Quirk))


if __name__ == "__main__":
    stale = list(stale_entries(datetime.now(UTC).date()))
    total = f"{len(stale)} of {len(all_known_clients())} known clients have facts that are older than {STALE_DAYS} days"
    sys.stdout.write("\n".join([total, *stale, ""]))
