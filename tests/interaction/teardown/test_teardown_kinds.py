"""Generators and context managers of every kind are entered and exited, in every place."""

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Depends, Resolve, Server
from roundtrip.testing import Era, User
from tests.interaction.teardown.held import CLOSED, LOG, OPENED, ended_by, logged, play, server_of, session

pytestmark = pytest.mark.anyio


@contextmanager
def by_contextmanager() -> Generator[str]:
    with logged("plain"):
        yield "plain"


@asynccontextmanager
async def by_asynccontextmanager() -> AsyncGenerator[str]:
    with logged("async"):
        yield "async"


class Plain:
    """A context manager that logs."""

    def __init__(self, name: str = "class") -> None:
        self._name = name

    def __enter__(self) -> str:
        LOG.append(f"open {self._name}")
        return self._name

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        LOG.append(f"close {self._name}" if kind is None else f"{self._name}: {kind.__name__}")


class Both(Plain):
    """A context manager of both kinds, of which the one that can wait is taken."""

    async def __aenter__(self) -> str:
        await anyio.lowlevel.checkpoint()
        return super().__enter__().upper()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await anyio.lowlevel.checkpoint()
        super().__exit__(kind, *rest)


class Chosen(Plain):
    """A plain context manager by its class, whose objects are another's."""

    def __new__(cls, name: str = "class") -> Any:
        del name
        return by_asynccontextmanager()


class Shop:
    async def opened(self) -> AsyncGenerator[str]:
        with logged("method"):
            yield "method"

    def __call__(self) -> Generator[str]:
        with logged("object"):
            yield "object"


@pytest.mark.parametrize(
    ("fn", "name", "value"),
    [
        (by_contextmanager, "plain", "plain"),
        (by_asynccontextmanager, "async", "async"),
        (Plain, "class", "class"),
        (Both, "class", "CLASS"),
        (Chosen, "async", "async"),
        (lambda: (yield from by_contextmanager.__wrapped__()), "plain", "plain"),  # type: ignore[attr-defined]
        (Shop().opened, "method", "method"),
        (Shop(), "object", "object"),
        (functools.partial(Plain, "first"), "first", "first"),
        (functools.partial(Both, "second"), "second", "SECOND"),
        (functools.partial(functools.partial(logged, "third")), "third", "third"),
    ],
)
async def test_everything_that_can_be_entered_is(fn: Callable[..., Any], name: str, value: str) -> None:
    async def order(held: Annotated[str, Depends(fn)]) -> str:
        LOG.append(f"body {held}")
        if LOG.count(f"body {held}") == 2:
            raise ValueError("no")
        return held

    server = server_of(order)
    for _ in range(2):
        await play(server, Era.RETRY)
    begun = [f"open {name}", f"body {value}"]
    assert [*begun, f"close {name}", *begun, f"{name}: ValueError"] == LOG


async def test_a_context_manager_under_resolve_stays_a_value() -> None:
    async def order(value: Annotated[Plain, Resolve(Plain)]) -> str:
        return type(value).__name__

    assert await play(server_of(order), Era.RETRY) == "Plain"
    assert LOG == []


async def test_a_generator_under_resolve_is_entered_as_any() -> None:
    async def order(value: Annotated[str, Resolve(session)], same: str = Depends(session)) -> str:
        return f"{value is same}"

    assert await play(server_of(order), Era.RETRY) == "True"
    assert [*OPENED, *CLOSED] == LOG


async def test_prompts_and_resource_templates_leave_what_they_enter() -> None:
    server = Server("shop")

    @server.prompt()
    def greet(session: str = Depends(session)) -> str:
        return session

    @server.resource("shop://{city}")
    async def shop(city: str, session: str = Depends(session)) -> str:
        raise ValueError(city)

    user = User(server, era=Era.RETRY)
    await user.get_prompt("greet")
    assert [*OPENED, *CLOSED] == LOG
    LOG.clear()
    with pytest.raises(MCPError):
        await user.read_resource("shop://Paris")
    assert ended_by("ValueError") == LOG
