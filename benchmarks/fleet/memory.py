"""Memory while calls await input: in a stateless process, and in one with the SDK's legacy sessions."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.asgi import PATH
from benchmarks.fleet.host import THREE_ROUNDS
from benchmarks.fleet.processes import Process, served
from benchmarks.fleet.throughput import connected
from benchmarks.sockets import Connection
from benchmarks.wire import Asked, Finished, WrongReply, call, read
from benchmarks.workloads import ARGUMENTS, TOOL

__all__ = ["MemoryUse", "awaiting", "sessions"]

_AT_ONCE: Final = 8
_SAMPLE: Final = 100
"""How many of the awaiting calls are answered at the end, to show that they are alive."""
_LEGACY: Final = "2025-11-25"
_REPLY_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory before and after."""

    calls: int
    before: int
    """Bytes after the warm-up."""
    after: int
    """Bytes while the calls await input."""


def awaiting(calls: int, *, warm_up: int) -> MemoryUse:
    """Begin calls on one roundtrip process. All of them then await input."""
    with served("roundtrip") as (server,):
        return asyncio.run(_awaiting(server, calls, warm_up))


async def _awaiting(server: Process, calls: int, warm_up: int) -> MemoryUse:
    connections = [await connected(server) for _ in range(_AT_ONCE)]
    for asked in (await _begin_calls(connections, warm_up))[:_SAMPLE]:
        await _finish(connections[0], asked)
    before = server.rss
    held = await _begin_calls(connections, calls)
    after = server.rss
    for asked in random.Random(calls).sample(held, min(_SAMPLE, calls)):
        await _finish(connections[0], asked)
    return MemoryUse(calls, before, after)


async def _begin_calls(connections: Sequence[Connection], calls: int) -> list[Asked]:
    """Begin calls, and return those that were asked their first question."""
    numbers = iter(range(calls))
    held: list[Asked] = []

    async def some(connection: Connection) -> None:
        for _ in numbers:
            request = call()
            reply = read(await connection.post(request.body, headers=request.headers))
            if not isinstance(reply, Asked) or reply.state is None:
                raise WrongReply(f"the first leg had to ask, and said {reply}")
            held.append(reply)

    await asyncio.gather(*map(some, connections))
    return held


async def _finish(connection: Connection, asked: Asked) -> None:
    """Answer every question from here on."""
    reply: Asked | Finished = asked
    for answer in THREE_ROUNDS.answers:
        if isinstance(reply, Asked):
            answers = {key: {"text": str(answer)} for key in reply.questions}
            request = call(answers=answers, state=reply.state)
            reply = read(await connection.post(request.body, headers=request.headers))
    if not isinstance(reply, Finished) or reply.text != THREE_ROUNDS.text:
        raise WrongReply(f"a call that had awaited input ended with {reply}")


def sessions(calls: int, *, warm_up: int) -> MemoryUse:
    """Begin calls on one SDK process. Each has a session that holds its question open."""
    with served("sessions") as (server,):
        return asyncio.run(_sessions(server, calls, warm_up))


async def _sessions(server: Process, calls: int, warm_up: int) -> MemoryUse:
    held = [await _Session.asked(server) for _ in range(warm_up)]
    before = server.rss
    held += [await _Session.asked(server) for _ in range(calls)]
    after = server.rss
    for session in held:
        session.close()
    return MemoryUse(calls, before, after)


class _Session:
    """Client on the older revision, whose call was asked its question over the open response."""

    def __init__(self, read: asyncio.StreamReader, write: asyncio.StreamWriter, *, port: int) -> None:
        self._read = read
        self._write = write
        self._port = port
        self._id = ""

    @classmethod
    async def asked(cls, server: Process) -> "_Session":
        read, write = await asyncio.open_connection("127.0.0.1", server.port)
        session = cls(read, write, port=server.port)
        who = {"name": "benchmarks", "version": "0"}
        hello: dict[str, Any] = {"protocolVersion": _LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": who}
        head = await session._post({"id": 1, "method": "initialize", "params": hello}, until=b"serverInfo")
        session._id = next(
            line[16:].strip() for line in head.splitlines() if line.lower().startswith("mcp-session-id:")
        )
        await session._post({"method": "notifications/initialized"}, until=b"202 Accepted")
        params = {"name": TOOL, "arguments": ARGUMENTS}
        await session._post({"id": 2, "method": "tools/call", "params": params}, until=b"elicitation/create")
        return session

    async def _post(self, message: Mapping[str, Any], *, until: bytes) -> str:
        """Send a message, read until a text has arrived, and return everything that was read."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        headers = {
            "host": f"127.0.0.1:{self._port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
        }
        if self._id:
            headers |= {"mcp-session-id": self._id, "mcp-protocol-version": _LEGACY}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._write.write(f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        received = b""
        async with asyncio.timeout(_REPLY_SECONDS):
            while until not in received:
                part = await self._read.read(65536)
                if not part:
                    raise WrongReply(f"the connection was closed after {received[:300]!r}")
                received += part
        # The next read must not take the rest of this response for its own.
        if b"text/event-stream" in received and not received.endswith(b"0\r\n\r\n") and until != b"elicitation/create":
            await self._read.readuntil(b"0\r\n\r\n")
        return received.decode()

    def close(self) -> None:
        self._write.close()
