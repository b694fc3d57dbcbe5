"""FastMCP and `MCPServer` with `install`, which tests make and use like a `roundtrip.Server`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mcp.server import MCPServer

import roundtrip
from roundtrip.adapters.finding import attached
from roundtrip.install import install, signal

__all__ = ["class_named"]


def class_named(name: str) -> Any:
    """Return a class whose servers are made like a `roundtrip.Server`."""
    if name == "Server":
        return roundtrip.Server
    if name == "MCPServer":
        return _like_server(MCPServer[Any], install, lambda server: server.add_tool)
    # The first tier has no FastMCP.
    from fastmcp import FastMCP

    from roundtrip.fastmcp import install as install_in_fastmcp

    return _like_server(FastMCP[Any], install_in_fastmcp, lambda server: partial(FastMCP.tool, server))


def _like_server(base: Any, attach: Callable[..., None], registering: Callable[[Any], Callable[..., Any]]) -> Any:
    class Installed(base):
        def __init__(self, name: str, **options: Any) -> None:
            super().__init__(name)  # pyright: ignore[reportUnknownMemberType] - the base is a value
            attach(self, **options)
            register = registering(self)

            def add_tool(fn: Callable[..., Any], *, name: str | None = None, **details: Any) -> None:
                register(roundtrip.tool(**details)(fn) if details else fn, name=name)

            # `install` replaces this method on the instance, too.
            self.add_tool = add_tool

        def __class_getitem__(cls, _: Any) -> Any:
            return cls

        def tool(self, target: Any = None, *, name: str | None = None, **options: Any) -> Any:
            if "add_tool" not in vars(self):
                # `install` adds a tool of its own.
                return base.tool(self, target, name=name, **options)

            def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
                self.add_tool(fn, name=name, **options)
                return fn

            return decorate if target is None else decorate(target)

        @property
        def internals(self) -> Any:
            return attached(self)

        @property
        def ledger(self) -> Any:
            return self.internals.ledger

        def identity(self) -> Any:
            return self.internals.identity()

        async def signal(self, call_id: str, name: str, payload: Any = None) -> bool:
            return await signal(self, call_id, name, payload)

    return Installed
