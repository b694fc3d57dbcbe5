"""`server.overrides`: replace functions of the graph without monkeypatching."""

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import pytest

from roundtrip import Context, Depends, Elicit, InvalidSignature, Resolve, Server
from roundtrip.testing import Answers, Era, LegByLeg, User
from tests.kit.players import connect, text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


def current_account() -> str:
    return "ada"


def greeting(account: str = Depends(current_account)) -> str:
    return f"hello {account}"


async def sure() -> Elicit[bool]:
    return Elicit("Sure?", bool)


def shop() -> Server:
    server = Server("shop", keys=[KEY])

    @server.tool
    async def by_depends(account: str = Depends(current_account)) -> str:
        return account

    @server.tool
    async def nested(text: str = Depends(greeting)) -> str:
        return text

    @server.tool
    async def by_resolve(account: Annotated[str, Resolve(current_account)]) -> str:
        return account

    @server.tool
    async def asks(sure: Annotated[bool, Resolve(sure)]) -> str:
        return str(sure)

    return server


async def said(server: Server, era: Era, tool: str, answers: Answers | None = None) -> str:
    return (await User(server, answers, era=era).call(tool)).text


async def test_function_is_replaced_everywhere_and_restored() -> None:
    server = shop()
    tools = ("by_depends", "by_resolve", "nested")
    server.overrides[current_account] = lambda: "eve"
    assert [await said(server, Era.RETRY, tool) for tool in tools] == ["eve", "eve", "hello eve"]
    del server.overrides[current_account]
    assert [await said(server, Era.RETRY, tool) for tool in tools] == ["ada", "ada", "hello ada"]


async def test_inside_a_block_only() -> None:
    server = shop()
    server.overrides[greeting] = lambda: "good day"
    with server.overrides({current_account: lambda: "eve"}) as overrides:
        assert set(overrides) == {current_account, greeting}
        assert await said(server, Era.RETRY, "by_depends") == "eve"
        assert await said(server, Era.RETRY, "nested") == "good day"
    assert await said(server, Era.RETRY, "by_depends") == "ada"
    assert set(server.overrides) == {greeting}


async def test_failing_override_block_restores_its_targets() -> None:
    server = shop()
    server.overrides[current_account] = lambda: "eve"
    with pytest.raises(KeyError, match="boom"), server.overrides({current_account: lambda: "mallory"}):
        raise KeyError("boom")
    assert await said(server, Era.RETRY, "by_depends") == "eve"


async def test_a_replacement_has_dependencies_of_its_own() -> None:
    async def session() -> AsyncGenerator[str]:
        yield "a session"

    def from_session(ctx: Context, session: str = Depends(session)) -> str:
        return f"{session}, {ctx.call.leg >= 1}"

    server = shop()
    with server.overrides({current_account: from_session}):
        assert await said(server, Era.RETRY, "nested") == "hello a session, True"
        # What only the replacement needs can be replaced in its turn.
        with server.overrides({session: lambda: "another"}):
            assert await said(server, Era.RETRY, "nested") == "hello another, True"


async def test_question_and_value_can_replace_each_other() -> None:
    server = shop()
    with server.overrides({sure: lambda: True}):
        assert await said(server, Era.RETRY, "asks") == "True"

    async def who() -> Elicit[str]:
        return Elicit("Who?", str)

    with server.overrides({current_account: who}):
        assert await said(server, Era.RETRY, "by_depends", {"current_account": "eve"}) == "eve"


async def test_replaced_question_keeps_its_name_and_pending_answers() -> None:
    server = shop()
    hopper = LegByLeg([server])
    await hopper.leg("asks")
    assert set(hopper.questions) == {"sure"}

    async def very_sure() -> Elicit[bool]:
        return Elicit("Sure?", bool)

    with server.overrides({sure: very_sure}):
        result = await hopper.leg("asks", answers={"sure": {"value": True}}, state=hopper.token)
    assert text_of(result) == "True"


async def test_later_registration_is_overridden_too() -> None:
    server = shop()
    server.overrides[current_account] = lambda: "eve"

    @server.tool
    async def later(account: str = Depends(current_account)) -> str:
        return account

    assert await said(server, Era.RETRY, "later") == "eve"


async def test_replacement_does_not_hide_a_misfit_beside_it() -> None:
    server = shop()
    server.overrides[current_account] = lambda: "eve"

    async def amount() -> Elicit[int]:
        return Elicit("How many?", int)

    def later(account: Annotated[str, Resolve(current_account)], many: Annotated[str, Resolve(amount)]) -> str:
        return account + many

    with pytest.raises(InvalidSignature, match="resolver 'amount' asks for int, but parameter 'many' takes str"):
        server.overrides[greeting] = later


async def test_prompts_templates_and_dependencies_without_a_parameter_follow() -> None:
    server = Server("shop")
    ran: list[str] = []

    def check() -> None:
        ran.append("check")

    @server.prompt()
    def greet(account: Annotated[str, Depends(current_account)]) -> str:
        return account

    @server.resource("shop://{city}/account")
    def account(city: str, account: Annotated[str, Depends(current_account)]) -> str:
        return account

    @server.tool(dependencies=[check])
    async def checked() -> str:
        return "done"

    with server.overrides({current_account: lambda: "eve", check: lambda: ran.append("replaced")}):
        async with connect(server, Era.RETRY) as client:
            prompt = await client.get_prompt("greet")
            (content,) = (await client.read_resource("shop://ulm/account")).contents
            await client.call_tool("checked")
    assert "eve" in prompt.messages[0].content.model_dump_json()
    assert "eve" in content.model_dump_json()
    assert ran == ["replaced"]


def test_a_function_that_is_used_nowhere_cannot_be_replaced() -> None:
    server = shop()
    with pytest.raises(KeyError, match=r"'gc_collect' must fill a parameter .* current_account, greeting, sure"):
        server.overrides[_named("gc_collect")] = lambda: None
    with pytest.raises(KeyError), server.overrides({current_account: lambda: "eve", _named("other"): lambda: None}):
        pass
    assert not server.overrides


def test_unfillable_replacement_is_rejected_and_changes_nothing() -> None:
    def lost(nobody_knows: str) -> str:
        return nobody_knows

    server = shop()
    with pytest.raises(InvalidSignature, match="'nobody_knows'"):
        server.overrides[current_account] = lost
    assert not server.overrides
    assert server.internals.plans["by_depends"].nodes[0].fn is current_account


def _named(name: str) -> Callable[..., Any]:
    def fn() -> None: ...

    fn.__name__ = name
    return fn
