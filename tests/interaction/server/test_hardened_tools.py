"""Regressions of tools that once leaked values, starved or were mistaken for others."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Image, InvalidSignature, Resolve, Server
from roundtrip.testing import Era, User
from roundtrip.threads.slots import SHARED
from tests.kit.held_threads import Held
from tests.kit.players import Person, connect, text_of
from tests.kit.raised import raised
from tests.kit.shops import Choice, sure
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

SECRET = "quarterly-margin-31"


# No client reads a value that the server computed, regardless of the failure.


def margin() -> int:
    return SECRET  # type: ignore[return-value]


def secretive(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    async def by_step(ctx: Context) -> str:
        await ctx.step("margin", margin)
        return "kept"

    @server.tool
    async def by_resolver(kept: Annotated[int, Resolve(margin, remember=True)]) -> str:
        return "kept"

    @server.prompt()
    async def prompted(ctx: Context) -> str:
        await ctx.step("margin", margin)
        return "kept"

    return server


@pytest.mark.parametrize("mask", [False, True])
async def test_unstorable_value_is_not_revealed(era: Era, mask: bool) -> None:
    for tool in ("by_step", "by_resolver"):
        call = await User(secretive(mask_error_details=mask), era=era).call(tool)
        assert call.is_error
        assert SECRET not in call.result.model_dump_json()
    with pytest.raises(MCPError) as caught:
        await User(secretive(mask_error_details=mask), era=era).get_prompt("prompted")
    assert SECRET not in str(caught.value.error)


async def test_masking_server_hides_nested_error_details(era: Era) -> None:
    inner, outer = Server("inner"), Server("outer", mask_error_details=True)

    @inner.tool
    async def crash() -> str:
        raise RuntimeError(SECRET)

    @outer.tool
    async def calls(ctx: Context) -> str:
        return str(await inner.call_tool("crash", {}))

    assert (await User(outer, era=era).call("calls")).text == "Error executing tool calls"


# Threads.


async def test_a_thread_left_behind_reaches_for_nothing_any_more(held: Held) -> None:
    server, raised = Server("shop"), list[Exception]()

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.tool(timeout=1)
    def slow(ctx: Context) -> str:
        held()
        for late in (
            partial(ctx.blocking.read_resource, "shop://hours"),
            partial(ctx.blocking.report_progress, 1, 2),
            partial(ctx.blocking.info, "late"),
        ):
            try:
                late()
            except Exception as error:  # noqa: BLE001 - to be looked at in the test
                raised.append(error)
        return "late"

    with pytest.raises(MCPError, match="timed out"):
        await User(server).call("slow")
    held.release.set()
    await until(lambda: len(raised) == 3)
    assert [type(error).__name__ for error in raised] == ["AskedTooLate"] * 3


async def test_plain_tool_reads_its_returned_file_in_its_thread(tmp_path: Path) -> None:
    pipe = tmp_path / "picture.png"
    os.mkfifo(pipe)
    server = Server("shop")

    @server.tool(timeout=0.2)
    def picture() -> Image:
        return Image(path=pipe)

    with pytest.raises(MCPError, match=r"timed out after 0\.2s"):
        await User(server).call("picture")
    os.close(os.open(pipe, os.O_RDWR))  # lets the thread go
    await until(lambda: not SHARED.slots().limiter.borrowed_tokens, what="no thread")


# Who is meant.


async def test_bound_partial_parameter_is_filled_by_nothing_else() -> None:
    async def pay(to: str, account: str, approval: Annotated[Choice, Resolve(sure)]) -> str:
        return f"{to} {account} {approval.ok}"

    server = Server("bank")
    server.add_tool(partial(pay, approval=Choice(ok=False), account="ours"), "pay")
    person = Person()
    async with connect(server, Era.RETRY, person) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("pay", {"to": "eve", "account": "theirs", "approval": {"ok": True}})
    assert list(listed.input_schema["properties"]) == ["to"]
    assert text_of(result) == "eve ours False"
    assert person.asked == []


async def test_template_registered_again_follows_its_new_tags() -> None:
    server = Server("shop")

    @server.resource("shop://{name}")
    def public(name: str) -> str:
        return "public"

    @server.resource("shop://{name}", tags={"admin"})
    def admin(name: str) -> str:
        return "admin"

    server.disable(tags={"admin"})
    with pytest.raises(MCPError, match="Unknown resource"):
        await User(server, era=Era.RETRY).read_resource("shop://keys")


async def test_a_registration_that_fails_leaves_nothing_behind() -> None:
    server = Server("shop")
    with pytest.raises(InvalidSignature):

        @server.prompt(name="greet", enabled=False)
        async def wrong(ok: Annotated[Choice, Resolve(lambda nobody_knows: nobody_knows)]) -> str:  # type: ignore[misc]
            return "never"

    @server.prompt(name="greet")
    async def right() -> str:
        return "hello"

    async with connect(server, Era.RETRY) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]


MEANINGLESS: list[tuple[dict[str, Any], str]] = [
    ({"meta": {"fastmcp": "x"}, "tags": {"a"}}, "must be a dict"),
    ({"tags": [1]}, "must be strings"),
    ({"version": 1.1}, "must be text, such as '1.10'"),
    ({"timeout": True}, "positive, finite number"),
    ({"timeout": "3"}, "tool 'margin': timeout= must be a positive, finite number of seconds, got '3'"),
    ({"ttl": 0}, "tool 'margin': ttl= and max_age= must be finite numbers of seconds with 0 < ttl <= max_age"),
    ({"recover": 60.0}, "tools have no option 'recover' anymore; docs/stability.md says what to use instead"),
    ({"confirm": " "}, "tool 'margin': confirm=' ' must be a question"),
]


def test_options_that_mean_nothing_are_rejected() -> None:
    errors = [(raised(Server("shop").add_tool, margin, **options), text) for options, text in MEANINGLESS]
    assert [(error, text) for error, text in errors if text not in str(error)] == []
