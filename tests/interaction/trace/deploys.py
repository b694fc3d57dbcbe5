"""A shop in a file, calls of it that are recorded, and the same shop after a change."""

import json
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from mcp_types import Root
from pydantic import FileUrl

from roundtrip import Server
from roundtrip.cli import main
from roundtrip.cli.running.loading import load_any_server
from roundtrip.testing import ACCEPT, Era, User
from tests.kit.players import call

SHOP = """\
from typing import Annotated

from pydantic import BaseModel, Field

from roundtrip import Elicit, Resolve, Server

RAN: list[str] = []
server = Server("shop", keys=[b"k" * 32])


class Name(BaseModel):
    name: str


class Copies(BaseModel):
    number: int = Field(le=10)


class Sure(BaseModel):
    ok: bool


async def buyer() -> Elicit[Name]:
    return Elicit("Your name?", Name)


async def copies(title: str) -> Elicit[Copies]:
    return Elicit(f"How many of {title}?", Copies)


async def sure(copies: Annotated[Copies, Resolve(copies)]) -> Elicit[Sure]:
    return Elicit(f"Really {copies.number}?", Sure)


@server.tool()
async def order(
    title: str,
    buyer: Annotated[Name, Resolve(buyer)],
    copies: Annotated[Copies, Resolve(copies)],
    sure: Annotated[Sure, Resolve(sure)],
) -> str:
    RAN.append(title)
    return f"{buyer.name}: {copies.number} x {title}"
"""

REPLIES: dict[str, Any] = {
    "Your name?": {"name": "Ada"},
    "How many of Dune?": {"number": 7},
    "Really 7?": {"ok": True},
}

Change = tuple[str, str]


def changed(source: str, *changes: Change) -> str:
    """Return a source with some texts replaced; each text must occur."""
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source


@contextmanager
def forgetting() -> Generator[None]:
    """Restore imported modules and their paths afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name.startswith(("roundtrip_target_", "shop_")):
                del sys.modules[name]


def deploy(folder: Path, name: str, source: str) -> str:
    """Write a server's module, and return its name for the command line."""
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    # Python knows a module that was compiled before by its size and the second in which it was written.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
    return f"{file}:server"


def module_of(target: str) -> ModuleType:
    """Return the module that a command line loaded."""
    return sys.modules[f"roundtrip_target_{Path(target.rpartition(':')[0]).stem}"]


class Recording:
    """Recorder of calls of servers from files, configured by the environment."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.file = folder / "calls.jsonl"
        self._monkeypatch = monkeypatch

    def load(self, source: str, *, reveal: str = "all") -> Server[Any]:
        """Return a server that records."""
        with self._monkeypatch.context() as patched:
            patched.setenv("ROUNDTRIP_TRACE", str(self.file))
            patched.setenv("ROUNDTRIP_TRACE_REVEAL", reveal)
            return load_any_server(deploy(self.folder, "recorded", source))

    def call(
        self,
        source: str = SHOP,
        *,
        era: Era = Era.RETRY,
        tool: str = "order",
        arguments: dict[str, Any] | None = None,
        answer: Callable[[Any], Any] = lambda params: REPLIES[params.message],
        reveal: str = "all",
        **options: Any,
    ) -> None:
        """Make one complete call of a server."""
        server = self.load(source, reveal=reveal)
        given = {"title": "Dune"} if arguments is None else arguments

        async def play() -> None:
            await call(server, era, tool, given, answer=answer, **options)

        anyio.run(play)


def last_call(recording: Recording) -> str:
    """Return the name of the last recorded call."""
    return json.loads(recording.file.read_text(encoding="utf-8").splitlines()[-1])["call"]


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    printed = capsys.readouterr()
    assert printed.err == "" or code == 2
    return code, printed.out


def checked(recording: Recording, capsys: pytest.CaptureFixture[str], *changes: Change, source: str = SHOP) -> str:
    """Check the recording on changed code, and return the report; the exit code must agree with it."""
    target = deploy(recording.folder, "changed", changed(source, *changes))
    code, out = check(capsys, target, str(recording.file))
    compatible, *failing, unchecked = map(
        int, re.findall(r"(\d+) (?:compat|asking|diverging|not)", out.splitlines()[-1])
    )
    assert code == (1 if any(failing) else 0 if not unchecked else 3 if compatible else 2)
    return out


BODY = """\
from roundtrip import Context, Server

RAN: list[str] = []
server = Server("shop", keys=[b"k" * 32])


def pay(euros: int) -> int:
    RAN.append("paid")
    return euros


@server.tool()
async def order(title: str, ctx: Context) -> str:
    number = await ctx.ask("copies", f"How many of {title}?", int)
    paid = await ctx.step("pay", pay, 9 * number)
    sure = await ctx.ask("sure", f"{paid} euros?", bool)
    RAN.append("sent")
    return f"{number} x {title}: {sure}"
"""

TALKS = """\
from typing import Annotated

from mcp import MCPError
from mcp_types import CreateMessageResult, ListRootsResult
from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server

server = Server("talks", keys=[b"k" * 32])


def size() -> Elicit[int]:
    return Elicit("Which size?", int)


def colour() -> Elicit[str]:
    return Elicit("Which colour?", str)


@server.tool()
async def choose(
    size: Annotated[ElicitationResult[int], Resolve(size)],
    colour: Annotated[ElicitationResult[str], Resolve(colour)],
) -> str:
    return f"{size.action}, {colour.action}"


@server.tool()
async def need(size: Annotated[int, Resolve(size)], colour: Annotated[str, Resolve(colour)]) -> str:
    return f"{size}, {colour}"


@server.tool()
async def talk(ctx: Context) -> str:
    one = await ctx.ask_outcome("one", "One?", bool)
    two = await ctx.ask_outcome("two", "Two?", bool)
    return f"{one.action}, {two.action}"


@server.tool()
async def pay(ctx: Context) -> str:
    page = f"https://pay.example/?ticket={ctx.call.ticket('pay', unbound=True)}"
    return (await ctx.ask_outcome("page", ElicitUrl("Pay here", page))).action


@server.tool()
async def fall_back(ctx: Context) -> int:
    return await ctx.ask("stars", "Stars?", int, fallback=3)


@server.tool()
async def end(ctx: Context) -> str:
    await ctx.ask("one", "One?", bool)
    raise MCPError(code=-32050, message="out of film")


def think() -> Sample:
    return Sample("Think of a book", max_tokens=10)


def folders() -> ListRoots:
    return ListRoots()


def toll(thought: Annotated[CreateMessageResult, Resolve(think)]) -> ElicitUrl[bool]:
    return ElicitUrl("Pay here", "https://shop.example/pay")


@server.tool()
async def dream(
    thought: Annotated[CreateMessageResult, Resolve(think)],
    folders: Annotated[ListRootsResult, Resolve(folders)],
    toll: Annotated[bool, Resolve(toll)],
) -> str:
    return f"{folders.roots[0].uri} {toll}"


@server.tool(version="1")
async def repeat(text: str) -> str:
    return "first"


@server.tool(name="repeat", version="2")
async def repeat_twice(text: str) -> str:
    return "second"
"""


def dream(server: Server[Any], era: Era) -> None:
    """Make a call that asks for a sample, for roots and for a visit to a page."""
    user = User(server, {"think": "Dune", "toll": ACCEPT}, era=era, roots=[Root(uri=FileUrl("file:///shop"))])
    anyio.run(user.call, "dream")
