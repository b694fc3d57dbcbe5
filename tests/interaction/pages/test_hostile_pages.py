"""Question pages on hostile networks: requests of clients and of browsers arrive twice, late, elsewhere, or forged."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from roundtrip import Context, Server
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger
from roundtrip.testing import User
from tests.interaction.pages.paged import paged
from tests.kit.hosts import WAIT, hosted
from tests.kit.html_forms import read_page
from tests.kit.page_users import BASE, KEY, client_of, handle_in, link_in, text_of

pytestmark = pytest.mark.anyio

ANSWERS: Final = {"First?": "1", "Second?": "20", "Third?": "300"}
FORM_TYPE: Final = "application/x-www-form-urlencoded"


def make_shop(ledger: Ledger, effects: list[int], **options: Any) -> Server[Any]:
    # Shorter than the patience of a client.
    server = paged("shop", wait=1, ledger=ledger, **options)

    @server.tool(exactly_once=True)
    async def add(ctx: Context) -> str:
        """Add three numbers."""
        numbers = [await ctx.ask(message, message, int) for message in ANSWERS]
        effects.append(sum(numbers))
        return str(sum(numbers))

    return server


async def answer_all(link: str, urls: Sequence[str]) -> list[bytes]:
    """Answer a page to its end, each form twice at once and after stale ones, and return the forms.

    Each request reaches the next one of several instances.
    """
    places = 0
    forms: list[bytes] = []

    async def send(body: bytes = b"") -> httpx.Response:
        nonlocal places
        places += 1
        headers = {"origin": BASE, "sec-fetch-site": "same-origin", "content-type": FORM_TYPE}
        async with httpx.AsyncClient(cookies={"user": "ann"}, timeout=WAIT) as http:
            address = link.replace(BASE, urls[places % len(urls)])
            response = await http.request("POST" if body else "GET", address, content=body or None, headers=headers)
        assert response.status_code < 500
        return response

    async def send_twice(body: bytes) -> list[int]:
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await send(body)).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        return sorted(statuses)

    with anyio.fail_after(WAIT):
        while True:
            shown = await send()
            heading = next((message for message in ANSWERS if message in shown.text), None)
            if "<form" in shown.text and heading is not None:
                # The form of the round before, from a tab that is still open, with another answer and each button.
                for old in (b"7000", b"") if forms else ():
                    stale = re.sub(rb"q0-f0=\d+", b"q0-f0=" + old, forms[-1])
                    for body in (stale, stale.replace(b"decision=answer", b"decision=decline")):
                        assert (await send(body)).status_code == 409
                forms.append(read_page(shown.text).fill("q0-f0", ANSWERS[heading]).body())
                assert await send_twice(forms[-1]) == [303, 409]
            elif "Done" in shown.text:
                return forms
            else:
                await anyio.sleep(0.01)


@asynccontextmanager
async def instances(tmp_path: Path, effects: list[int]) -> AsyncGenerator[list[str]]:
    """Serve two instances that share a ledger."""
    apps = [make_shop(SqliteLedger(tmp_path / "calls.db"), effects).streamable_http_app() for _ in range(2)]
    async with hosted(apps[0]) as one, hosted(apps[1]) as other:
        yield [one, other]


async def test_each_round_of_a_page_is_answered_once(tmp_path: Path) -> None:
    effects: list[int] = []
    async with instances(tmp_path, effects) as urls, client_of(urls[0]) as client:
        asked = await client.call_tool("add")
        forms = await answer_all(link_in(asked), urls)
        async with client_of(urls[1]) as other:
            results = [
                await one.call_tool("continue_call", {"handle": handle_in(asked)}) for one in (client, other, client)
            ]
        assert [text_of(result) for result in results] == ["321"] * 3
        assert effects == [321]
        assert len(forms) == 3
        # The page has ended: no post counts any more, and the link shows nothing of the call.
        for form in forms:
            async with httpx.AsyncClient(cookies={"user": "ann"}, timeout=WAIT) as http:
                address = link_in(asked).replace(BASE, urls[0])
                late = await http.post(address, content=form, headers={"content-type": FORM_TYPE})
            assert late.status_code == 409
            # A color of the page has these digits, too.
            assert re.search(r"\b321\b", late.text) is None
        assert effects == [321]


LEDGER: Final = MemoryLedger()
EFFECTS: Final[list[int]] = []


def ann(ctx: object) -> str:
    return "ann"


def make_instance(keys: Sequence[bytes] = (KEY,)) -> Server[Any]:
    return make_shop(LEDGER, EFFECTS, keys=list(keys), principal=ann)


@pytest.mark.roundtrip(hostile=True, eras="both")
async def test_client_on_a_hostile_network_ends_its_call_once() -> None:
    EFFECTS.clear()
    script = {message: int(text) for message, text in ANSWERS.items()}
    user = User(make_instance, script, client="no-elicitation", page_headers={"cookie": "user=ann"})
    call = await user.call("add")
    assert call.value == "321"
    assert EFFECTS == [321]
