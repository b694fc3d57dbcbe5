"""Instances of a simulated fleet, which die, pause and come back, and the network between them and their clients."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.types import ASGIApp, Message

from roundtrip import Server
from roundtrip.ledger.contract import LedgerDown
from roundtrip.system import System
from roundtrip.tracing import Tracer
from tests.kit.asgi_scopes import scope_of
from tests.kit.wire import headers_of, meta_of
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.shop import Diary, make_server
from tests.simulation.store import EPOCH, WHOSE, SharedStore, SimulatedLedger

__all__ = ["DECLINED_SECONDS", "Instance", "Network", "Unanswered"]

Json = dict[str, Any]

DECLINED_SECONDS: Final = 120.0
"""The time for which a decline of an intent holds."""
_SIGNAL_SECONDS: Final = 60.0
_ENDING_SECONDS: Final = 30.0
_PATH: Final = "/mcp"
_HOST: Final = "127.0.0.1:8000"


class Unanswered(Exception):
    """No response came in time."""


class Instance:
    """One instance of the server, which can die and be started again.

    Args:
        name: Its name.
        store: The store of the fleet.
        diary: Notes what the tools do.
        tools: The tools that it serves.
        chance: Decides how fast it works, and how wrong its clock is.
        tracer: Its tracer.
        life_with_new_key: The number of the process that is the first to use the new key.
    """

    def __init__(
        self,
        name: str,
        store: SharedStore,
        diary: Diary,
        tools: Collection[str],
        chance: random.Random,
        tracer: Tracer,
        life_with_new_key: float,
    ) -> None:
        self.name = name
        self._store = store
        self._loop = store.loop
        self._diary = diary
        self._tools = tools
        self._chance = chance
        self._tracer = tracer
        self._skew = chance.choice([0.0, chance.uniform(-20, 20)])
        self._lives = itertools.count(1)
        self._life_with_new_key = life_with_new_key
        self.dead: list[Process] = []
        self._app: ASGIApp | None = None
        self._leave = asyncio.Event()
        self._server: Server[Any] | None = None
        self._state: dict[str, Any] = {}
        self.process = Process(name)
        self.process.is_alive = False

    def start(self) -> None:
        """Start a new process."""
        life = next(self._lives)
        name = f"{self.name}.{life}"
        self.process = Process(name)
        self._app, self._leave = None, asyncio.Event()
        loop, skew = self._loop, self._skew
        with loop.running(self.process):
            system = System(
                time=lambda: EPOCH + loop.time() + skew,
                monotonic=loop.time,
                entropy=self._chance.randbytes,
                sleep=asyncio.sleep,
            )
            server = make_server(
                name,
                self._diary,
                self._tools,
                ledger=SimulatedLedger(self._store, self.process),
                system=system,
                tracer=self._tracer,
                has_new_key=life >= self._life_with_new_key,
                declined_for=DECLINED_SECONDS,
                draw=lambda: self._chance.choice(
                    [0.05, 1.0, self._chance.uniform(0, 60), self._chance.uniform(60, 100)]
                ),
            )
            app = server.streamable_http_app(streamable_http_path=_PATH, json_response=True, stateless_http=True)
            self._server = server
            loop.create_task(self._serve(app, self._leave))

    async def _serve(self, app: ASGIApp, leave: asyncio.Event) -> None:
        process, state = self.process, dict[str, Any]()
        arrived: list[Message] = [{"type": "lifespan.startup"}]

        async def receive() -> Message:
            if not arrived:
                await leave.wait()
                return {"type": "lifespan.shutdown"}
            return arrived.pop()

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete" and self.process is process:
                self._app, self._state = app, state

        await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}, receive, send)

    def update(self) -> None:
        """Let the process end in good order, and start another one in its place."""
        process = self.process
        process.is_leaving = True
        self._store.trouble(process)
        self.dead.append(process)
        with self._loop.running(process):
            self._loop.call_soon(self._leave.set)
        # Nothing waits longer for a process that has been asked to end.
        self._loop.post(self._loop.world, _ENDING_SECONDS, self._loop.kill, process)
        self.start()

    def open_note(self, call_id: str, note: str) -> tuple[str, str]:
        """Return the key and the value of a stored step, as text."""
        if self._server is None or self._server.internals.storage.tasks is None:
            raise RuntimeError("the instance has no tasks")
        _, key, value = self._server.internals.storage.tasks.book.seal.open(note, call_id, "note")
        return key, str(value)

    async def signal(self, call_id: str, name: str, payload: Any) -> bool:
        """Send a signal, as a program of the server's author would."""
        try:
            return self._server is not None and await self._server.signal(call_id, name, payload)
        except LedgerDown:
            return False

    def pause(self, seconds: float) -> None:
        """Let the process stand still for some time."""
        self._store.trouble(self.process)
        self._loop.pause(self.process, seconds)

    def kill(self) -> None:
        """End the process at once."""
        self._store.trouble(self.process)
        self._loop.kill(self.process)
        self.dead.append(self.process)
        self._app = None

    async def handle(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Serve one request; 503 while the instance starts."""
        if self._app is None:
            return 503, b""
        raw = [(b"host", _HOST.encode()), (b"content-length", str(len(body)).encode())]
        raw += [(name.encode(), value.encode()) for name, value in headers.items()]
        arrived: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            return arrived.pop() if arrived else await asyncio.Future[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope_of(raw, state=dict(self._state)), receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


class Network:
    """Network between clients and instances, which loses, delays and doubles requests."""

    def __init__(self, loop: SimulatedLoop, instances: list[Instance], chance: random.Random) -> None:
        self._loop = loop
        self._instances = instances
        self._chance = chance
        self._ids = itertools.count(1)
        self.lost = chance.choice([0.0, 0.05, 0.2])
        self.doubled = chance.choice([0.0, 0.1, 0.3])
        self.is_sticky = chance.random() < 0.2
        self.doubles: list[tuple[str, Json]] = []
        """The responses to copies of requests, which no client has seen."""

    def stop(self) -> None:
        """Make the network a good one."""
        self.lost = self.doubled = 0.0

    def _delay(self) -> float:
        return self._chance.choice([0.001, 0.01, self._chance.uniform(0, 5)])

    async def post(
        self, user: str, method: str, params: Json, *, tasks: bool, patience: float, whose: str = ""
    ) -> Json:
        """Send a request to an instance, and return the response. `whose` names its intent.

        Raises:
            Unanswered: No response came in time.
        """
        loop, asker = self._loop, self._loop.process
        body, headers = request_of(user, method, params, tasks=tasks, number=next(self._ids))
        answered: asyncio.Future[Json] = loop.create_future()

        def answer(is_copy: bool, response: Json) -> None:
            if is_copy or answered.done():
                self.doubles.append((user, response))
            else:
                answered.set_result(response)

        def deliver(instance: Instance, is_copy: bool) -> None:
            async def serve() -> None:
                WHOSE.set(whose)
                status, content = await instance.handle(headers, body)
                if status != 503 and self._chance.random() >= self.lost:
                    loop.post(asker, self._delay(), answer, is_copy, json.loads(content))

            if instance.process.is_alive:
                with loop.running(instance.process):
                    loop.create_task(serve())

        copies = 2 if self._chance.random() < self.doubled else 1
        for number in range(copies):
            instance = self._instances[0] if self.is_sticky else self._chance.choice(self._instances)
            if self._chance.random() >= self.lost:
                loop.post(loop.world, self._delay(), deliver, instance, number > 0)
        try:
            async with asyncio.timeout(patience):
                return await answered
        except TimeoutError:
            raise Unanswered from None

    async def signal(self, call_id: str, name: str, payload: Any) -> bool:
        """Let an instance send a signal to a task; return True if it is known to have arrived."""
        loop, asker, instance = self._loop, self._loop.process, self._chance.choice(self._instances)
        answered: asyncio.Future[bool] = loop.create_future()

        def begin() -> None:
            async def send() -> None:
                sent = await instance.signal(call_id, name, payload)
                loop.post(asker, self._delay(), lambda: answered.done() or answered.set_result(sent))

            if instance.process.is_alive:
                with loop.running(instance.process):
                    loop.create_task(send())

        loop.post(loop.world, self._delay(), begin)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SIGNAL_SECONDS):
                return await answered
        return False


def request_of(user: str, method: str, params: Json, *, tasks: bool, number: int) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request."""
    capabilities: Json = {"elicitation": {"form": {}}}
    if tasks:
        capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    name = params.get("name") or params["taskId"]
    headers = {**headers_of(method, None), "content-type": "application/json", "mcp-name": name, "x-user": user}
    meta = meta_of("a simulated client", capabilities)
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
    return json.dumps(body).encode(), headers
