"""The cost of an inbox with many approvals, as the work of its store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from roundtrip import Server
from roundtrip.ledger import SqliteLedger
from roundtrip.ledger.tasks import TaskEntry, TaskSummary
from tests.kit.approving import Person, open_shop, shop
from tests.kit.page_users import client_of

pytestmark = pytest.mark.anyio


class CountingStore:
    """Store that counts what is read of another one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, call_id: str) -> tuple[TaskEntry | None, float]:
        self.read += 1
        return await self._store.load(call_id)

    async def labelled(self, label: str, **options: Any) -> Sequence[TaskSummary]:
        found = await self._store.labelled(label, **options)
        self.read += 1 + len(found)
        return found


def counted(server: Server[Any]) -> CountingStore:
    service = server.task_service
    assert service is not None
    store = CountingStore(service.book.store)
    service.book.store = cast("Any", store)
    return store


async def opened(store: CountingStore, person: Person) -> int:
    """Return how much is read to open an inbox."""
    before = store.read
    assert (await person.get("/approvals")).status_code == 200
    return store.read - before


async def fill(server: Server[Any], template: TaskEntry, places: range) -> None:
    """Store more calls like one."""
    service = server.task_service
    assert service is not None
    book = service.book
    content = book.seal.read(template.content, template.call_id)
    for place in places:
        call_id = f"{template.call_id}-{place}"
        entry = template.copy()
        entry.call_id, entry.version = call_id, 0
        content.approvals[0]["id"] = f"{call_id}.secret"
        entry.content = book.seal.write(content, call_id)
        assert await book.store.add(entry)


async def test_inbox_of_a_thousand_costs_no_more_than_three_of_ten(tmp_path: Path) -> None:
    server = shop(ledger=SqliteLedger(tmp_path / "calls.db", durable=False), wait=0)
    store = counted(server)
    async with open_shop(server) as url, client_of(url) as client:
        await client.call_tool("refund", {"amount": 1})
        fay, sam = Person(url, "fay"), Person(url, "sam")
        approval = await fay.one()
        template, _ = await store.load(approval.rpartition(".")[0])
        assert template is not None
        await fill(server, template, range(9))
        few, none = await opened(store, fay), await opened(store, sam)
        assert few >= 10
        await fill(server, template, range(9, 999))
        assert len(await fay.inbox()) == 1000
        assert await opened(store, fay) <= 3 * few
        assert await opened(store, sam) == none
