"""A shop in a file, calls of it that are recorded, and the same shop after a change."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult

from roundtrip import Server
from roundtrip.cli import main
from roundtrip.cli.loading import load_server
from roundtrip.testing import Era
from roundtrip.testing.networks.fleet import Instance
from tests.kit.players import call, connect, roots, sample

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
            return load_server(deploy(self.folder, "recorded", source))

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
    assert code == (0 if " 0 asking again, 0 diverging" in out else 1)
    return out


MIXED = """\
from typing import Annotated

from mcp_types import CreateMessageResult, ListRootsResult
from roundtrip import ElicitUrl, ListRoots, Resolve, Sample, Server

server = Server("mixed", keys=[b"k" * 32])


def think() -> Sample:
    return Sample("Think of a book", max_tokens=10)


def folders() -> ListRoots:
    return ListRoots()


def pay(thought: Annotated[CreateMessageResult, Resolve(think)]) -> ElicitUrl[bool]:
    return ElicitUrl("Pay here", "https://shop.example/pay")


@server.tool()
async def order(
    title: str,
    thought: Annotated[CreateMessageResult, Resolve(think)],
    folders: Annotated[ListRootsResult, Resolve(folders)],
    paid: Annotated[bool, Resolve(pay)],
) -> str:
    return f"{title} {paid}"
"""


async def agree(context: Any, params: Any) -> ElicitResult:
    del context, params
    return ElicitResult(action="accept")


def record_mixed(recording: Recording, era: Era, source: str) -> None:
    server: Instance = recording.load(source)

    async def play() -> None:
        options: dict[str, Any] = {"sampling_callback": sample, "list_roots_callback": roots}
        async with connect(server, era, agree, **options) as client:  # type: ignore[arg-type]
            result = await client.call_tool("order", {"title": "Dune"})
            assert not result.is_error

    anyio.run(play)
