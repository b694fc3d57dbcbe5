"""The example that tells a chat of approvals, and the tests on the page about them."""

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples import approvals_webhook
from tests.docs.pages import blocks
from tests.interaction.tasks.operators import operator_of
from tests.kit.hosts import ROOT, hosted
from tests.kit.page_users import client_of, go_on, handle_in, text_of
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio


async def test_chat_is_told_and_the_page_decides() -> None:
    told: list[str] = []

    async def hear(request: Request) -> Response:
        told.append((await request.json())["text"])
        return Response()

    async with hosted(Starlette(routes=[Route("/hook", hear, methods=["POST"])]), lifespan="off") as chat:
        server = approvals_webhook.shop(f"{chat}/hook", base_url="https://shop.example", remind=3600)
        async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
            asked = await client.call_tool("refund", {"order": "<b>1</b>", "amount": 5})
            await until(lambda: len(told) == 1)
            await operator_of(server).act(handle_in(asked).partition(".")[0], "remind")
            assert told[0].startswith("Refund 5 for &quot;&lt;b&gt;1")
            assert "ada waits for finance: https://shop.example/approvals/" in told[0]
            assert "ada still waits for finance" in told[1]
            approval = told[0].rpartition("/")[2]
            async with httpx.AsyncClient(auth=("ada", "lovelace"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals/{approval}")).status_code == 404
            async with httpx.AsyncClient(auth=("fay", "finance"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals/{approval}")).status_code == 200
                decided = await http.post(f"{url}/approvals/api/{approval}", json={"decision": "approve"})
                assert decided.status_code == 200
            async with httpx.AsyncClient(auth=("fay", "guess"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals")).status_code == 401
            result = await go_on(client, asked)
            assert text_of(result) == "5 refunded for <b>1</b>"


async def test_tests_of_the_page_pass() -> None:
    page = ROOT / "docs" / "approvals.md"
    names: dict[str, Any] = {"__name__": "approvals_page"}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, str(page), "exec", dont_inherit=True), names)
    for name in ("test_refund", "test_rejection"):
        await names[name]()
