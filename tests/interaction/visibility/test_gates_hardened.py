"""Regressions of visibility gates that once admitted, hid or broke the wrong thing."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, Resolve, Server, get_context
from roundtrip.testing import Era, LegByLeg, User, served
from tests.interaction.visibility.gates import said, same, tools
from tests.kit.players import connect, text_of
from tests.kit.shops import KEY
from tests.kit.time_limits import LIMIT, hang
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


async def test_gate_evaluated_without_arguments_is_evaluated_again_with_them() -> None:
    def check(path: str = "") -> bool:
        if path.startswith("/etc"):
            raise PermissionError(path)
        return True

    server = Server("files")

    @server.tool(enabled=check, dependencies=[check])
    async def read(path: str, checked: bool = Depends(check)) -> str:
        return f"read {path} {checked}"

    user = User(server, era=Era.RETRY)
    assert (await user.call("read", {"path": "/home"})).text == "read /home True"
    assert (await user.call("read", {"path": "/etc/passwd"})).is_error


async def test_fixed_call_value_is_not_taken_from_a_gate() -> None:
    drawn: list[int] = []

    def draw() -> int:
        drawn.append(len(drawn) + 1)
        return len(drawn)

    server = Server("shop", keys=[KEY])

    @server.tool(enabled=draw)
    async def lottery(number: Annotated[int, Resolve(draw, remember=True)], ctx: Context) -> str:
        await ctx.ask("sure", "Sure?", bool)
        return str(number)

    hopper = LegByLeg([server])
    await hopper.leg("lottery")
    first = drawn[-1]
    result = await hopper.leg("lottery", answers={"sure": {"value": True}}, state=hopper.token)
    assert text_of(result) == str(first)


async def test_gate_context_is_absent_from_the_body() -> None:
    def anyone(ctx: Context) -> bool:
        return ctx.request_id != ""

    server = Server("shop")

    @server.tool(enabled=Depends(anyone, get_context))
    async def order(ctx: Context = Depends(get_context)) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    assert (await User(server, {"sure": {"value": True}}, era=Era.RETRY).call("order")).text == "True"


@pytest.mark.usefixtures("limits")
async def test_gate_scopes_are_exited_outside_of_the_timeout(era: Era) -> None:
    async def scoped() -> AsyncGenerator[bool]:
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group():
                yield True

    server = Server("shop")

    @server.tool(enabled=scoped, timeout=LIMIT)
    async def quick() -> str:
        return "done"

    @server.tool(enabled=scoped, timeout=LIMIT)
    async def slow() -> None:
        await hang()

    user = User(server, era=era)
    for _ in range(2):
        assert (await user.call("quick")).text == "done"
        with pytest.raises(MCPError, match="timed out"):
            await user.call("slow")


class Odd(BaseException):
    """Error that is not an `Exception`, as some libraries have them."""


async def cancelled_lookup() -> bool:
    task = asyncio.ensure_future(anyio.sleep(WAIT))
    await anyio.lowlevel.checkpoint()
    task.cancel()
    await task
    return True


async def odd() -> bool:
    raise Odd("of a library")


async def group() -> bool:
    raise BaseExceptionGroup("of a library", [Odd("inner")])


async def fine() -> bool:
    await anyio.lowlevel.checkpoint()
    return True


class Undecided:
    def __bool__(self) -> bool:
        raise Odd("cannot say")


FAULTS: dict[str, Callable[[], Any]] = {
    "cancelled": cancelled_lookup,
    "odd": odd,
    "group": group,
    "undecided": Undecided,
}


async def test_raising_gate_hides_only_its_own_item(era: Era) -> None:
    server = Server("shop")
    for name, fault in FAULTS.items():
        server.add_tool(one, name, enabled=fault)
    server.add_tool(one, "shown", enabled=fine)
    async with served(server) as url:
        for target in (server, url):
            async with connect(target, era) as client:
                assert await tools(client) == ["shown"]
                texts = [await said(client, name) for name in (*FAULTS, "shown")]
                assert texts == [*(f"Unknown tool: {name}" for name in FAULTS), "1"]


@contextlib.contextmanager
def shut() -> Generator[bool]:
    yield False


@contextlib.asynccontextmanager
async def shut_later() -> AsyncGenerator[bool]:
    yield False


class Checker:
    async def __call__(self) -> bool:
        return False


ODDITIES: list[Any] = [
    shut,
    shut_later,
    Checker,
    Checker(),
    functools.partial(Checker()),
    Future(),
    map(bool, [0]),
    NotImplemented,
    ValueError("no"),
    ValueError,
    lambda: False,
    Depends(same),
    None,
    "",
]


async def test_truthy_non_boolean_opens_no_gate() -> None:
    server = Server("shop")
    for number, value in enumerate(ODDITIES):
        unrun: Any = value() if value in (shut, shut_later) else value
        server.add_tool(one, f"{type(value).__name__} {number}", enabled=functools.partial(same, unrun))
    server.add_tool(one, "full", enabled=lambda: ["pro"])
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == ["full"]


async def test_task_outliving_its_request_inherits_no_gate_values() -> None:
    open_: list[bool] = [True]
    later, done = anyio.Event(), anyio.Event()
    texts: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    def gate() -> bool:
        return open_[0]

    server = Server("shop")

    @server.tool(enabled=gate)
    async def secret() -> str:
        return "secret"

    @server.tool(enabled=gate)
    async def starts() -> str:
        async def late() -> None:
            await later.wait()
            try:
                texts.append(str(await server.call_tool("secret", {})))
            except Exception as error:  # noqa: BLE001 - looked at below
                texts.append(str(error))
            done.set()

        tasks.append(asyncio.ensure_future(late()))
        return "started"

    await User(server, era=Era.RETRY).call("starts")
    open_[0] = False
    later.set()
    with anyio.fail_after(WAIT):
        await done.wait()
    assert texts == ["Unknown tool: secret"]


async def test_a_server_within_a_server_has_contexts_of_its_own() -> None:
    inner, outer = Server("inner"), Server("outer")

    @inner.resource("shop://who")
    def who() -> str:
        return get_context().mcp_server.name

    @inner.prompt()
    def which() -> str:
        return get_context().mcp_server.name

    @outer.tool
    async def calls() -> list[str]:
        async with connect(inner, Era.RETRY) as client:
            (content,) = (await client.read_resource("shop://who")).contents
            prompt = await client.get_prompt("which")
        return [content.text, prompt.messages[0].content.text, get_context().mcp_server.name]  # type: ignore[union-attr]

    async with connect(outer, Era.RETRY) as client:
        result = await client.call_tool("calls")
    assert result.structured_content == {"result": ["inner", "inner", "outer"]}


def one() -> int:
    return 1


async def test_override_block_survives_the_end_of_its_target() -> None:
    server = Server("shop")
    for name in ("kept", "removed"):

        @server.tool(name=name)
        async def tool(number: int = Depends(one if name == "kept" else two)) -> str:
            return str(number)

    del tool
    with server.overrides({one: lambda: 10, two: lambda: 20}):
        with server.overrides({two: lambda: 200}):
            server.remove_tool("removed")
        assert text_of(await server.call_tool("kept", {})) == "10"  # type: ignore[arg-type]
    assert text_of(await server.call_tool("kept", {})) == "1"  # type: ignore[arg-type]


def two() -> int:
    return 2
