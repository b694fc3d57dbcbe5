"""The example's shop as a fleet, behind a real nginx, for clients of both eras at once, while instances die."""

import json
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from roundtrip.cli import main
from roundtrip.testing import Era
from tests.kit.forks import ForkedProcess, start
from tests.kit.hosts import ROOT, WAIT, is_listening
from tests.kit.live_wire import session
from tests.kit.nginx_server import for_any_user, listening, run_nginx
from tests.kit.players import text_of
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer, redis_server
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, needs("nginx", "redis")]

ANSWERS = {"Which edition": "hardcover", "How many": 2, "Order 2": True}
PLACED = "Ordered 2 x {}, hardcover."
SESSION = "mcp-session-id"
NAMES = ("a", "b", "c")
_STARTS: Final = 3 * WAIT
"""Seconds that importing everything may take, for several processes at once on a busy machine."""

FLEET: Final = ROOT / "examples" / "fleet"


class Instance:
    """Process on a port of its own. While it is down, its port refuses connections and stays reserved."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = {**os.environ, **environment}
        self.folder = folder
        self._log = folder / "log"
        self._held = socket.socket()
        # A port that is bound in this way can be listened at by another process, until which it refuses.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        words = ["serve", f"{FLEET / 'shop.py'}:server", "--sessions", "--port", str(self.port)]
        with self._log.open("ab") as log:
            stream = log.fileno()
            self._process = start(main, words, cwd=ROOT, env=self._environment, stdout=stream, stderr=stream)

    def wait(self) -> None:
        """Wait until it accepts connections."""
        ends = time.monotonic() + _STARTS
        while not is_listening(self.port):
            if time.monotonic() > ends or self._process is None or self._process.poll() is not None:
                raise AssertionError(self._log.read_text())
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT)
            self._process = None

    def __enter__(self) -> "Instance":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._held.close()


@dataclass
class Fleet:
    instances: list[Instance]
    redis: RedisServer
    url: str
    """Of an nginx with the configuration that people copy, which keeps sessions with their instances."""

    def orders(self) -> Counter[str]:
        """Return the number of orders of each title."""
        said = self.redis.command("lrange", "shop:orders", "0", "-1").splitlines()
        return Counter(json.loads(line)["title"] for line in said)


def _instance(folder: Path, environment: dict[str, str]) -> Instance:
    folder.mkdir()
    return Instance({**environment, "ROUNDTRIP_TRACE": str(folder / "calls.jsonl")}, folder)


@pytest.fixture(scope="module")
def fleet() -> Generator[Fleet]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(redis_server())
        environment = {"SHOP_REDIS": redis.url, "ROUNDTRIP_KEYS": os.urandom(32).hex()}
        instances = [stack.enter_context(_instance(folder / name, environment)) for name in NAMES]
        door = stack.enter_context(listening())
        port: int = door.getsockname()[1]
        configuration = folder / "nginx.conf"
        text = adapted((FLEET / "nginx.conf").read_text(encoding="utf-8"), port, [each.port for each in instances])
        configuration.write_text(for_any_user(text, folder), encoding="utf-8")
        stack.enter_context(run_nginx(configuration, door))
        for instance in instances:
            instance.wait()
        yield Fleet(instances, redis, f"http://localhost:{port}/mcp")


def adapted(text: str, door: int, ports: list[int]) -> str:
    """Return the example's configuration with other ports, and with a header that names the instance."""
    for name, port in zip(("8001", "8002", "8003"), ports, strict=True):
        assert name in text
        text = text.replace(name, str(port))
    hidden = "proxy_hide_header Mcp-Session-Id;"
    assert hidden in text
    text = text.replace(hidden, f"{hidden} add_header X-Instance $upstream_addr always;")
    return text.replace("listen 8080", f"listen 127.0.0.1:{door}")


Thinks = Callable[[ElicitRequestFormParams], Awaitable[None]]


class Customer:
    """A real client that remembers which instances it met, and as which session."""

    def __init__(self, thinks: Thinks | None = None) -> None:
        self._thinks = thinks
        self.asked: list[str] = []
        self.sessions: set[str] = set()
        self.met: set[str] = set()
        self.client: Client

    async def _answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        if self._thinks is not None:
            await self._thinks(params)
        value = next(answer for question, answer in ANSWERS.items() if params.message.startswith(question))
        return ElicitResult(action="accept", content={"value": value})

    async def _note(self, response: httpx2.Response) -> None:
        self.sessions.update(response.headers.get_list(SESSION))
        self.met.update(response.headers.get_list("x-instance"))

    @asynccontextmanager
    async def at(self, url: str, era: Era) -> AsyncGenerator["Customer"]:
        async with httpx2.AsyncClient(event_hooks={"response": [self._note]}, timeout=WAIT) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=era.value, elicitation_callback=self._answer) as self.client:
                yield self

    async def order(self, title: str) -> str:
        with anyio.fail_after(WAIT):
            return text_of(await self.client.call_tool("order", {"title": title}))

    @property
    def home(self) -> int:
        """Return the instance that has its session."""
        (session,) = self.sessions
        return NAMES.index(session.partition(".")[0])


class Meeting:
    """Meeting point where customers wait in their second question until all are there."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._here = 0
        self._all = anyio.Event()
        self.over = anyio.Event()

    async def __call__(self, params: ElicitRequestFormParams) -> None:
        if params.message.startswith("How many"):
            self._here += 1
            if self._here == self._size:
                self._all.set()
            with anyio.fail_after(WAIT):
                await self.over.wait()

    async def wait(self) -> None:
        with anyio.fail_after(WAIT):
            await self._all.wait()


async def test_live_clients_stay_with_their_instances_while_others_go_round(fleet: Fleet) -> None:
    meeting = Meeting(8)
    live = {f"Live {at}": Customer(meeting) for at in range(8)}
    retry = {f"Retry {at}": Customer() for at in range(8)}
    said: dict[str, str] = {}

    async def buy(title: str, customer: Customer, era: Era) -> None:
        async with customer.at(fleet.url, era):
            said[title] = await customer.order(title)

    async with anyio.create_task_group() as group:
        for title, customer in live.items():
            group.start_soon(buy, title, customer, Era.LIVE)
        await meeting.wait()
        # Eight live calls are open, on every instance; calls of the other era run through between them. They come one
        # after another: in step with each other, they could each find the same instance at their every turn.
        for title, customer in retry.items():
            await buy(title, customer, Era.RETRY)
        meeting.over.set()

    assert said == {title: PLACED.format(title) for title in live | retry}
    assert len({customer.home for customer in live.values()}) > 1
    assert all(len(customer.met) == 1 for customer in live.values())
    assert all(len(customer.met) > 1 and not customer.sessions for customer in retry.values())
    assert all(len(customer.asked) == 3 for customer in (live | retry).values())
    assert {title: fleet.orders()[title] for title in said} == dict.fromkeys(said, 1)
    async with httpx2.AsyncClient(timeout=WAIT) as http:
        addresses = (fleet.url.removesuffix("/mcp"), f"http://{fleet.instances[0].address}")
        assert [(await http.get(f"{each}/health/ready")).status_code for each in addresses] == [404, 200]


async def test_killed_instance_ends_only_its_own_sessions_with_an_error(fleet: Fleet) -> None:
    meeting = Meeting(8)
    customers = {f"Killed {at}": Customer(meeting) for at in range(8)}
    said: dict[str, str] = {}
    after: dict[str, MCPError] = {}
    errors: dict[str, MCPError] = {}
    theirs: set[str] = set()
    back = anyio.Event()

    async def buy(title: str, customer: Customer) -> None:
        async with customer.at(fleet.url, Era.LIVE):
            try:
                said[title] = await customer.order(title)
            except MCPError as error:
                errors[title] = error
                with pytest.raises(MCPError) as caught:
                    await customer.order(title)
                after[title] = caught.value
                await back.wait()
                with pytest.raises(MCPError, match="Session not found"):
                    await customer.order(title)

    async with anyio.create_task_group() as group:
        for title, customer in customers.items():
            group.start_soon(buy, title, customer)
        await meeting.wait()
        killed = customers["Killed 0"].home
        theirs |= {title for title, customer in customers.items() if customer.home == killed}
        fleet.instances[killed].kill()
        await until(lambda: set(after) == theirs)
        meeting.over.set()
        # Clients of the other era, and new ones of the same, do not notice.
        for era in (Era.RETRY, Era.LIVE, Era.AUTO):
            newcomer = Customer()
            async with newcomer.at(fleet.url, era):
                assert await newcomer.order(f"After {era.value}") == PLACED.format(f"After {era.value}")
        fleet.instances[killed].start()
        fleet.instances[killed].wait()
        back.set()

    assert set(said) == set(customers) - theirs
    assert all("ended without a response" in str(error) for error in errors.values())
    assert all("its instance is gone" in str(error) for error in after.values())
    assert not theirs & set(fleet.orders())


async def test_departed_client_behind_nginx_ends_its_live_call(fleet: Fleet) -> None:
    def rejections() -> int:
        said = (instance.folder / "calls.jsonl" for instance in fleet.instances)
        return sum(path.read_text().count('"ConnectionLost"') for path in said if path.exists())

    before = rejections()
    async with session(fleet.url) as client:
        async with client.calling("order", {"title": "Lost"}) as question:
            assert question["method"] == "elicitation/create"
        await until(lambda: rejections() > before)
