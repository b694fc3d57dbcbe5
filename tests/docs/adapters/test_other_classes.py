"""The tools of the README and of the tutorial run under other server classes, and return what they return here."""

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import anyio
import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer

import roundtrip
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import Era, User
from tests.docs.pages import ROOT, blocks
from tests.kit.hosts import own_loop

PAGES: Final = {"README.md": ("book", "book_group"), "docs/tutorial.md": ("book", "buy", "book_group", "blurb", "pay")}
ARGUMENTS: Final = {"film": "Solaris"}


ANSWERS: Final[dict[Any, Any]] = {
    re.compile("row|Seat"): {"row": "middle"},
    re.compile("That will be"): {"agree": True},
    re.compile("euros each"): True,
    re.compile("How many"): 2,
    re.compile("One sentence"): "A film about a planet.",
}


def tools_of(page: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Run a page, and return the tools that it registers with their options."""
    registered: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}

    register = roundtrip.Server[Any].tool

    def noting(server: roundtrip.Server[Any], **options: Any) -> Callable[..., Any]:
        def noted(fn: Callable[..., Any]) -> Any:
            registered[fn.__name__] = (fn, options)
            return register(server, **options)(fn)

        return noted

    module = ModuleType("cinema")
    monkeypatch.setitem(sys.modules, "cinema", module)
    with own_loop(), monkeypatch.context() as patched:
        patched.setattr(roundtrip.Server, "tool", noting)
        for block in blocks(page):
            if block.language == "python":
                exec(block.text, vars(module))
    return registered


def copied(fn: Any) -> Any:
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__annotations__, copy.__doc__ = fn.__annotations__, fn.__doc__
    return copy


def under(kind: str, fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return a server of a class with one tool."""
    ledger: dict[str, Any] = {"ledger": MemoryLedger()}
    if kind == "roundtrip":
        ours = roundtrip.Server[Any]("cinema", **ledger)
        ours.tool(**options)(fn)
        return ours
    # The page has registered the function.
    marked = roundtrip.tool(**options)(copied(fn)) if options else fn
    if kind == "FastMCP":
        mcp = FastMCP[Any]("cinema")
        install_in_fastmcp(mcp, **ledger)
        mcp.tool(marked)
        return mcp
    sdk = MCPServer[Any]("cinema")
    install(sdk, **ledger)
    sdk.tool()(marked)
    return sdk


@pytest.mark.parametrize("page", PAGES)
def test_tools_of_a_page_run_under_each_class(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tools_of(ROOT / page, monkeypatch)
    for name in PAGES[page]:
        for era in (Era.RETRY, Era.LIVE):
            results: dict[str, tuple[Any, list[str]]] = {}
            for kind in ("roundtrip", "FastMCP", "MCPServer"):
                fn, options = tools[name]
                # The tutorial's prices rise with each call.
                fn.__globals__["prices"] = itertools.count(20)
                user = User(under(kind, fn, options), ANSWERS, era=era, roots=[], allow_unused=True)
                call = anyio.run(user.call, name, ARGUMENTS)
                results[kind] = (call.value, [question.message for question in call.questions])
            assert results["FastMCP"] == results["MCPServer"] == results["roundtrip"], (name, era)
            assert results["roundtrip"][1], name
