"""Question pages on hostile networks: requests of clients and of browsers arrive twice, late, elsewhere, or forged."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import httpx
import pytest

from roundtrip import Context, Pages, Server
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger
from roundtrip.testing import User
from tests.kit.hosts import WAIT, hosted
from tests.kit.html_forms import read_page
from tests.kit.page_users import (
    BASE,
    KEY,
    client_of,
    handle_in,
    link_in,
    reader,
    text_of,
    user_of,
)

pytestmark = pytest.mark.anyio

ANSWERS: Final = {"First?": "1", "Second?": "20", "Third?": "300"}
FORM_TYPE: Final = "application/x-www-form-urlencoded"


def make_shop(ledger: Ledger, effects: list[int], *, keys: Sequence[bytes] = (KEY,), **options: Any) -> Server[Any]:
    # Shorter than the patience of a client.
    pages = Pages(base_url=BASE, authenticate=reader, wait=1)
    given: dict[str, Any] = {"keys": list(keys), "principal": user_of, "pages": pages, "ledger": ledger, **options}
    server = Server[Any]("shop", **given)

    @server.tool(exactly_once=True)
    async def add(ctx: Context) -> str:
        """Add three numbers."""
        numbers = [await ctx.ask(message, message, int) for message in ANSWERS]
        effects.append(sum(numbers))
        return str(sum(numbers))

    return server


@dataclass(frozen=True)
class PageRequest:
    """One request of a browser."""

    method: Literal["GET", "POST"]
    link: str
    body: bytes = b""
    user: str | None = "ann"
    headers: dict[str, str] = field(default_factory=lambda: {"origin": BASE, "sec-fetch-site": "same-origin"})


Send = Callable[[PageRequest], Awaitable[httpx.Response]]


class PageNetwork:
    """Network between a browser and the pages, which sends each request once."""

    def __init__(self) -> None:
        self.posts: list[PageRequest] = []
        """The genuine posts so far."""

    async def carry(self, request: PageRequest, send: Send) -> httpx.Response:
        """Send a request in any way, and return the response that the browser gets."""
        return await send(request)


class TwiceAtOnce(PageNetwork):
    async def carry(self, request: PageRequest, send: Send) -> httpx.Response:
        responses: list[httpx.Response] = []

        async def one() -> None:
            responses.append(await send(request))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        if request.method == "POST":
            assert sorted(response.status_code for response in responses) == [303, 409]
        return responses[0]


class OtherTab(PageNetwork):
    """The form of the round before is sent from a tab that is still open, with another answer and each button."""

    async def carry(self, request: PageRequest, send: Send) -> httpx.Response:
        if request.method == "POST" and self.posts:
            for old in (b"7000", b""):
                stale = re.sub(rb"q0-f0=\d+", b"q0-f0=" + old, self.posts[-1].body)
                for body in (stale, stale.replace(b"decision=answer", b"decision=decline")):
                    late = await send(replace(request, body=body))
                    assert late.status_code == 409
        return await send(request)


PAGE_NETWORKS: Final = (TwiceAtOnce, OtherTab)


async def answer_all(link: str, urls: Sequence[str], network: PageNetwork) -> None:
    """Answer a page to its end; each request reaches the next one of several instances."""
    places = 0

    async def send(request: PageRequest) -> httpx.Response:
        nonlocal places
        places += 1
        cookies = {"user": request.user} if request.user is not None else None
        async with httpx.AsyncClient(cookies=cookies, timeout=WAIT) as http:
            headers = {"content-type": FORM_TYPE, **request.headers} if request.method == "POST" else request.headers
            address = request.link.replace(BASE, urls[places % len(urls)])
            response = await http.request(request.method, address, content=request.body or None, headers=headers)
        assert response.status_code < 500
        return response

    with anyio.fail_after(WAIT):
        while True:
            shown = await network.carry(PageRequest("GET", link), send)
            heading = next((message for message in ANSWERS if message in shown.text), None)
            if "<form" in shown.text and heading is not None:
                form = read_page(shown.text).fill("q0-f0", ANSWERS[heading])
                post = PageRequest("POST", link, form.body())
                # To the browser, a form that was taken before leads on, too.
                assert (await network.carry(post, send)).status_code in (303, 409)
                network.posts.append(post)
            elif "Done" in shown.text:
                return
            else:
                await anyio.sleep(0.01)


@asynccontextmanager
async def instances(tmp_path: Path, effects: list[int]) -> AsyncGenerator[list[str]]:
    """Serve two instances that share a ledger."""
    apps = [make_shop(SqliteLedger(tmp_path / "calls.db"), effects).streamable_http_app() for _ in range(2)]
    async with hosted(apps[0]) as one, hosted(apps[1]) as other:
        yield [one, other]


@pytest.mark.parametrize("kind", PAGE_NETWORKS, ids=lambda kind: kind.__name__)
async def test_each_round_of_a_page_is_answered_once(kind: type[PageNetwork], tmp_path: Path) -> None:
    effects: list[int] = []
    async with instances(tmp_path, effects) as urls, client_of(urls[0]) as client:
        asked = await client.call_tool("add")
        network = kind()
        await answer_all(link_in(asked), urls, network)
        async with client_of(urls[1]) as other:
            results = [
                await one.call_tool("continue_call", {"handle": handle_in(asked)}) for one in (client, other, client)
            ]
        assert [text_of(result) for result in results] == ["321"] * 3
        assert effects == [321]
        assert len(network.posts) == 3
        # The page has ended: no post counts any more, and the link shows nothing of the call.
        for post in network.posts:
            async with httpx.AsyncClient(cookies={"user": "ann"}, timeout=WAIT) as http:
                late = await http.post(
                    post.link.replace(BASE, urls[0]), content=post.body, headers={"content-type": FORM_TYPE}
                )
            assert late.status_code == 409
            # A color of the page has these digits, too.
            assert re.search(r"\b321\b", late.text) is None
        assert effects == [321]


LEDGER: Final = MemoryLedger()
EFFECTS: Final[list[int]] = []


def ann(ctx: object) -> str:
    return "ann"


def make_instance(keys: Sequence[bytes] = (KEY,)) -> Server[Any]:
    return make_shop(LEDGER, EFFECTS, keys=keys, principal=ann)


@pytest.mark.roundtrip(hostile=True, eras="both")
async def test_client_on_a_hostile_network_ends_its_call_once() -> None:
    EFFECTS.clear()
    script = {message: int(text) for message, text in ANSWERS.items()}
    user = User(make_instance, script, client="no-elicitation", page_headers={"cookie": "user=ann"})
    call = await user.call("add")
    assert call.value == "321"
    assert EFFECTS == [321]
