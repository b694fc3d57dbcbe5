"""Servers of two services that share a ledger and keys: neither reads, lists, decides nor runs the other's calls."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip import Approvals, Approve, Pages, Server
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger
from roundtrip.server.tasks.operations import TaskNotChanged, TaskOperations
from tests.kit.approving import BASE, KEY, Person, reader, user_of
from tests.kit.hosts import hosted
from tests.kit.page_users import Browser, client_of, go_on, handle_in, link_in, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def service(name: str, ledger: Ledger, ran: list[str], **options: Any) -> Server[Any]:
    server = Server[Any](
        name,
        keys=[KEY],
        principal=user_of,
        pages=Pages(base_url=BASE, authenticate=reader, wait=20),
        approvals=Approvals(groups={"fay": ["finance"]}),
        ledger=ledger,
        **options,
    )

    @server.tool(confirm=Approve("Refund {amount}?", by="finance"))
    async def refund(amount: int) -> str:
        ran.append(name)
        return f"{name} refunded {amount}"

    @server.tool(confirm="Pay {amount}?")
    async def pay(amount: int) -> str:
        ran.append(name)
        return f"{name} paid {amount}"

    return server


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_services_do_not_share_calls(kind: str, tmp_path: Path) -> None:
    def ledgers() -> Ledger:
        return SqliteLedger(tmp_path / "one.db")

    shared = MemoryLedger()
    ran: list[str] = []
    # The shop leaves its calls to workers, and the first one that looks is the other service's.
    shop = service("shop", shared if kind == "memory" else ledgers(), ran, run_tasks=False)
    wiki = service("wiki", shared if kind == "memory" else ledgers(), ran)
    async with AsyncExitStack() as stack:
        at_shop = await stack.enter_async_context(hosted(shop.streamable_http_app()))
        at_wiki = await stack.enter_async_context(hosted(wiki.streamable_http_app()))
        of_shop = await stack.enter_async_context(client_of(at_shop))
        of_wiki = await stack.enter_async_context(client_of(at_wiki))
        refund = await of_shop.call_tool("refund", {"amount": 5})
        pay = await of_shop.call_tool("pay", {"amount": 1})
        approval = await Person(at_shop, "fay").one()
        assert await Person(at_wiki, "fay").inbox() == []
        sent = await Person(at_wiki, "fay").api(f"/{approval}", json={"decision": "approve"})
        assert sent.status_code == 404
        unknown = await of_wiki.call_tool("continue_call", {"handle": handle_in(pay)})
        assert "no such call" in text_of(unknown)
        assert (await Browser(at_wiki, "ann").open(link_in(pay))).status_code == 404
        # An equal call of the other service is another call.
        own = await of_wiki.call_tool("pay", {"amount": 1})
        assert handle_in(own) != handle_in(pay)
        assert wiki.task_service is not None
        operations, foreign = TaskOperations(wiki.task_service.book), handle_in(pay).partition(".")[0]
        for change in (operations.cancel(foreign), operations.retry(foreign, even_once=True)):
            with pytest.raises(TaskNotChanged, match="another service's"):
                await change

        page = (await Browser(at_shop, "ann").open(link_in(pay))).text
        assert (await Browser(at_shop, "ann").send(link_in(pay), page)).status_code == 303
        await Person(at_shop, "fay").decide("approve")
        # Due for longer than the other service's own call, which its worker finds behind them.
        page = (await Browser(at_wiki, "ann").open(link_in(own))).text
        assert (await Browser(at_wiki, "ann").send(link_in(own), page)).status_code == 303
        assert text_of(await of_wiki.call_tool("continue_call", {"handle": handle_in(own)})) == "wiki paid 1"
        assert ran == ["wiki"]

        worker = service("shop", shared if kind == "memory" else ledgers(), ran)
        async with hosted(worker.streamable_http_app()) as at_worker, client_of(at_worker) as client:
            with anyio.fail_after(WAIT):
                paid = await go_on(client, pay)
                refunded = await go_on(client, refund)
        assert text_of(paid) == "shop paid 1"
        assert text_of(refunded) == "shop refunded 5"


async def test_audience_names_the_service(tmp_path: Path) -> None:
    ran: list[str] = []
    first, second = [
        service(name, SqliteLedger(tmp_path / "one.db"), ran, audience="shops") for name in ("shop-1", "shop-2")
    ]
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(hosted(first.streamable_http_app()))
        other = await stack.enter_async_context(hosted(second.streamable_http_app()))
        client = await stack.enter_async_context(client_of(one))
        asked = await client.call_tool("refund", {"amount": 5})
        await Person(other, "fay").decide("approve")
        elsewhere = await stack.enter_async_context(client_of(other))
        assert "refunded 5" in text_of(await elsewhere.call_tool("continue_call", {"handle": handle_in(asked)}))
