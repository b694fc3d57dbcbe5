"""Two applications of one server, on the fast lane and on the SDK's transport, to be sent the same requests."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, Final

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import Field
from starlette.types import ASGIApp, Message

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.system import System
from tests.kit.asgi_scopes import scope_of
from tests.kit.waiting import WAIT

MAX_BYTES: Final = 20_000
NOW: Final = 1_800_000_000.0
_OUTSIDE: ContextVar[str] = ContextVar("outside", default="unset")


@dataclass(frozen=True)
class Post:
    """One HTTP request."""

    headers: tuple[tuple[str, str], ...]
    body: bytes
    verb: str = "POST"
    pieces: int = 1
    """The number of messages that bring the body."""
    cut: bool = False
    """True if the client leaves before the end of the body."""
    leaves: bool = False
    """True if the client leaves as soon as its call says that it has begun."""


@dataclass
class Seen:
    """Everything that one application did with one request."""

    sent: list[Any] = field(default_factory=list[Any])
    raised: str | None = None
    notes: list[Any] = field(default_factory=list[Any])
    """What middlewares, tools and the clock's entropy were asked and saw, in order."""
    logged: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    spans: list[Any] = field(default_factory=list[Any])


class Twin:
    """One of the applications."""

    def __init__(self, *, fast_lane: bool, json_only: bool, checks_names: bool) -> None:
        self._seen = Seen()
        self._drawn = 0
        self._begun = asyncio.Event()
        self._records = logging.Handler(logging.DEBUG)
        self._records.emit = self.log
        server = _server(self, fast_lane=fast_lane)
        self._app: ASGIApp = server.streamable_http_app(
            json_response=json_only,
            stateless_http=True,
            max_request_body_size=MAX_BYTES,
            transport_security=TransportSecuritySettings(
                enable_dns_rebinding_protection=checks_names,
                allowed_hosts=["ours.example", "127.0.0.1:*"],
                allowed_origins=["https://ours.example", "http://127.0.0.1:*"],
            ),
        )
        self.running = server.session_manager.run

    def note(self, *facts: Any) -> None:
        self._seen.notes.append(facts)

    @contextmanager
    def begun(self) -> Generator[None]:
        """Tell the client that its call has begun, and note if it is canceled."""
        self._begun.set()
        try:
            yield
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    def log(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f" {record.exc_info[1]!r}"
        self._seen.logged.append((record.name, record.levelno, text))

    def entropy(self, size: int) -> bytes:
        self._drawn += 1
        self.note("entropy", size)
        return hashlib.shake_128(str(self._drawn).encode()).digest(size)

    async def serve(self, post: Post, exporter: InMemorySpanExporter) -> Seen:
        """Send it a request, and return what it did."""
        self._seen, self._drawn, self._begun = Seen(), 0, asyncio.Event()
        _OUTSIDE.set("set by an ASGI middleware")
        exporter.clear()
        root = logging.getLogger()
        root.addHandler(self._records)
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in post.headers]
        scope = scope_of(headers, verb=post.verb, state={})
        inbox = iter(_messages(post))

        async def receive() -> Message:
            await asyncio.sleep(0)
            for message in inbox:
                return message
            await (self._begun.wait() if post.leaves else asyncio.Event().wait())
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self._seen.sent.append(
                {**message, "headers": list(message["headers"])} if "headers" in message else message
            )

        try:
            with anyio.fail_after(WAIT):
                # In a task of its own, as under a real server.
                await asyncio.ensure_future(self._app(scope, receive, send))
                if ("mcp-protocol-version", "2026-07-28") not in post.headers:
                    # Older revisions go on working when they have answered.
                    await asyncio.sleep(0.01)
        except Exception as error:  # noqa: BLE001 - to compare
            self._seen.raised = repr(error)
        finally:
            root.removeHandler(self._records)
        # An explicit end that is the default is seen by no client.
        self._seen.sent = [
            {key: value for key, value in message.items() if (key, value) != ("more_body", False)}
            for message in self._seen.sent
        ]
        self._seen.spans = [
            (
                span.name,
                dict(span.attributes or {}),
                span.status.status_code.name,
                [event.name for event in span.events],
            )
            for span in exporter.get_finished_spans()
        ]
        return self._seen


def _messages(post: Post) -> Iterator[Message]:
    size = max(1, -(-len(post.body) // post.pieces))
    parts = [post.body[start : start + size] for start in range(0, len(post.body), size)] or [b""]
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if is_last and post.cut:
            yield {"type": "http.disconnect"}
        else:
            yield {"type": "http.request", "body": part, "more_body": not is_last}


def _server(twin: Twin, *, fast_lane: bool) -> Server[Any]:
    async def noting(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        twin.note("in", ctx.method, ctx.request_id, ctx.meta, ctx.params, ctx.protocol_version, _OUTSIDE.get())
        twin.note("client", ctx.session.client_params, ctx.session.client_capabilities, ctx.lifespan_context)
        try:
            return await call_next(ctx)
        finally:
            twin.note("out", ctx.method)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[str]:
        yield "the state of the lifespan"

    system = System(time=lambda: NOW, monotonic=lambda: NOW, entropy=twin.entropy)
    server = Server[Any](
        "twin",
        keys=["k" * 32],
        fast_lane=fast_lane,
        lifespan=lifespan,
        middleware=[noting],
        system=system,
        log_level="DEBUG",
    )
    _add_plain_tools(twin, server)
    _add_telling_tools(twin, server)
    _add_prompts_and_resources(server)
    return server


def _add_plain_tools(twin: Twin, server: Server[Any]) -> None:
    @server.tool
    async def add(a: int, b: int = 2) -> int:
        twin.note("add", a, b)
        return a + b

    @server.tool
    async def numbers(which: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "nan": float("nan"),
            "infinity": float("inf"),
            "large": 1e300,
            "integer": 2**70,
            "none": {"a": None, "b": [None]},
            "keys": {"1": 1, "true": True},
            "text": "é😀 \x00",
        }
        return {"value": values.get(which, which)}

    @server.tool
    async def crash(text: str) -> str:
        raise ValueError(text)

    @server.tool
    async def fail(text: str) -> str:
        raise ToolError(text)

    @server.tool
    async def refuse(code: int, text: str) -> str:
        raise MCPError(code=code, message=text, data={"text": text})

    def wine(food: str) -> Elicit[bool]:
        return Elicit(f"Wine with {food}?", bool)

    @server.tool
    async def dinner(food: str, wine: Annotated[bool, Resolve(wine)]) -> str:
        return f"{food}, {wine}"

    @server.tool
    async def routed(
        region: str = Field(json_schema_extra={"x-mcp-header": "Region"}),
        count: int = Field(default=0, json_schema_extra={"x-mcp-header": "Count"}),
    ) -> str:
        return f"{region} {count}"


def _add_telling_tools(twin: Twin, server: Server[Any]) -> None:
    @server.tool
    async def report(ctx: Context, steps: int) -> str:
        for step in range(min(steps, 3)):
            await ctx.report_progress(step, 3, f"step {step}")
        return "reported"

    @server.tool
    async def log(ctx: Context, text: str, level: str = "info") -> str:
        await ctx.log("warning" if level == "warning" else "info", text)
        return "logged"

    @server.tool
    async def report_and_crash(ctx: Context) -> str:
        await ctx.report_progress(1)
        raise ValueError("after a report")

    @server.tool
    async def wait(ctx: Context) -> str:
        with twin.begun():
            await asyncio.sleep(0.001)
            await ctx.report_progress(1)
        return "waited"

    @server.tool
    async def hang() -> str:
        with twin.begun():
            await asyncio.Event().wait()
        return "hung"

    @server.tool
    async def request(ctx: Context) -> str:
        asked: Any = ctx.request_context.request
        twin.note("headers", dict(asked.headers), asked.url.path, ctx.headers, ctx.request_id, ctx.client_id)
        twin.note("body", await asked.body(), await asked.json(), asked.method)
        twin.note("outside", _OUTSIDE.get())
        return "seen"


def _add_prompts_and_resources(server: Server[Any]) -> None:
    @server.prompt()
    async def greet(name: str) -> str:
        return f"Greet {name}."

    @server.resource("menu://today", mime_type="text/plain")
    async def menu() -> str:
        return "soup"

    @server.resource("menu://{day}")
    async def menu_of(day: str) -> str:
        return f"soup on {day}"

    @server.resource("file://bytes")
    async def raw() -> bytes:
        return b"\x00\xff"


class Twins:
    """Both applications, for each combination of JSON answers alone, and checks of hosts and origins."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._pairs: dict[tuple[bool, bool], tuple[Twin, Twin]] = {}
        # Their lifespans begin and end in one task.
        self._holding = loop.create_task(self._hold())

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            for json_only, checks_names in product((False, True), repeat=2):
                fast = Twin(fast_lane=True, json_only=json_only, checks_names=checks_names)
                slow = Twin(fast_lane=False, json_only=json_only, checks_names=checks_names)
                await stack.enter_async_context(fast.running())
                await stack.enter_async_context(slow.running())
                self._pairs[json_only, checks_names] = (fast, slow)
            self._ready.set()
            await self._stop.wait()

    async def compare(
        self, post: Post, exporter: InMemorySpanExporter, *, json_only: bool, checks_names: bool
    ) -> tuple[Seen, Seen]:
        """Send a request both ways."""
        await self._ready.wait()
        fast, slow = self._pairs[json_only, checks_names]
        return await fast.serve(post, exporter), await slow.serve(post, exporter)

    async def close(self) -> None:
        """End both applications."""
        self._stop.set()
        await self._holding


def spans_of(provider: TracerProvider) -> InMemorySpanExporter:
    """Return the finished spans of a provider, as they come."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter
