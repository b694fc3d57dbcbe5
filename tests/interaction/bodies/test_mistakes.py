"""Bodies that ask in a way that cannot work get an error that names the tool, the question and the fix."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp.server.mcpserver import Context as SdkContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Event, ListRoots, Resolve, Sample, Server
from roundtrip.errors import QuestionDeclined
from roundtrip.testing import DECLINE, Era, LegByLeg, Steps, User
from tests.interaction.bodies.shops import LEFT, shop
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.shops import Choice

pytestmark = pytest.mark.anyio


async def test_swallowed_suspension_error_names_the_tool_and_question() -> None:
    async def body(ctx: Context[Any, Any]) -> int:
        try:
            return await ctx.ask("left", LEFT)
        except BaseException:  # noqa: BLE001 - what a body must not do
            return 0

    trace = Steps()
    result = await LegByLeg([shop(body, trace=trace)]).leg("order")
    assert text_of(result).startswith("Error executing tool order: the body caught the exception with which 'left'")
    assert "Catch Exception" in text_of(result)
    assert trace.events[-1] is Event.FAIL


async def test_a_suspension_swallowed_in_a_group_is_an_error_too() -> None:
    async def body(ctx: Context[Any, Any]) -> int:
        async def left() -> None:
            await ctx.ask("left", LEFT)

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(left)
        except BaseExceptionGroup:
            return 0
        return 1

    result = await LegByLeg([shop(body)]).leg("order")
    assert "caught the exception with which 'left'" in text_of(result)


async def test_declines_of_an_author_s_class_in_a_group_decline_the_call() -> None:
    class Refusal(QuestionDeclined):
        """A decline that the author tells apart."""

    async def body(ctx: Context[Any, Any]) -> int:
        raise ExceptionGroup("both", [Refusal("left", "decline"), QuestionDeclined("right", "decline")])

    trace = Steps()
    await LegByLeg([shop(body, trace=trace)]).leg("order")
    assert trace.events[-1] is Event.DECLINE


_MISFITS: list[tuple[Callable[[Any], Awaitable[Any]], str]] = [
    (lambda ctx: ctx.ask_outcome("it", ListRoots()), "must be given a form or a page, got ListRoots"),
    (lambda ctx: ctx.ask_outcome("it", Sample("Praise it", max_tokens=9)), "a form or a page, got Sample"),
    (lambda ctx: ctx.ask("it", "Left?"), "a message and a schema, or one question, got str;"),
    (lambda ctx: ctx.ask("it", LEFT, int), "a message and a schema, or one question, got Elicit, a schema;"),
    (lambda ctx: ctx.ask_outcome("it", LEFT, attempts=2), "or one question, got Elicit, attempts;"),
    (lambda ctx: ctx.ask("it", 7, int), "a message and a schema, or one question, got int, a schema;"),
]


async def test_question_given_in_parts_that_do_not_fit_is_named() -> None:
    start = re.compile(r"Error executing tool order: ctx.ask(_outcome)?\('it', ...\) must be given ")
    texts = {told: await _told(lambda ctx, ask=ask: ask(ctx)) for ask, told in _MISFITS}
    assert {told: text for told, text in texts.items() if told not in text or not start.match(text)} == {}


async def test_body_that_asks_with_the_context_of_the_sdk_is_told_which_one_to_take() -> None:
    told = await _told(lambda ctx: getattr(SdkContext(), "ask")("it", LEFT))  # noqa: B009 - it has none
    assert "ctx.ask must be used on roundtrip's Context, got mcp.server.mcpserver.context.Context" in told


async def _told(ask: Callable[[Any], Awaitable[Any]]) -> str:
    """Return the error of a body that asks in this way."""

    async def body(ctx: Context[Any, Any]) -> str:
        return f"{await ask(ctx)}"

    return (await User(shop(body), {}, era=Era.RETRY, allow_error=True).call("order")).text


async def test_question_awaited_after_its_body_is_rejected() -> None:
    kept: list[Any] = []

    async def body(ctx: Context[Any, Any]) -> str:
        kept.append(ctx.ask_outcome("left", LEFT))
        return "done"

    result = await LegByLeg([shop(body)]).leg("order")
    assert text_of(result).startswith("Error executing tool order: the body ended without awaiting 'left'")
    with pytest.raises(Exception, match="'left' was asked after its leg had ended"):
        await kept[0]


async def test_unawaited_question_fails_the_call_and_is_named(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        ctx.ask("left", LEFT)
        return "done"

    result = await User(shop(body), era=era).call("order")
    assert result.text.startswith("Error executing tool order: the body ended without awaiting 'left'")
    assert "`await ctx.ask(...)" in result.text


async def test_plain_tool_asking_without_blocking_is_pointed_to_blocking() -> None:
    def body(ctx: Context[Any, Any]) -> str:
        ctx.ask("left", LEFT)
        return "done"

    result = await User(shop(body), era=Era.RETRY).call("order")
    assert "in a plain `def` tool `ctx.blocking.ask(...)" in result.text


async def _ask_in_a_list(ctx: Context[Any, Any]) -> str:
    return str(await ctx.ask_all(["left", LEFT]))  # type: ignore[arg-type]


async def _name_by_a_number(ctx: Context[Any, Any]) -> str:
    return str(await ctx.ask(5, LEFT))  # type: ignore[call-overload]


async def _step_of_a_value(ctx: Context[Any, Any]) -> str:
    return str(await ctx.step("price", 5))  # type: ignore[arg-type]


async def _review_of_a_text(ctx: Context[Any, Any]) -> str:
    return str(await ctx.review("check", "Right?", of="left"))


_MISTAKEN_ARGUMENTS: list[tuple[Callable[[Any], Awaitable[Any]], str]] = [
    (_ask_in_a_list, "ctx.ask_all(...) must be given a mapping of names to questions, got list; write"),
    (_name_by_a_number, "the name of a question or step must be text, got int"),
    (_step_of_a_value, "ctx.step('price', ...) must be given a function, got int; write"),
    (_review_of_a_text, "ctx.review('check', of=...) must be given a list of names, got text; write of=['left']"),
    (lambda ctx: ctx.ask("", LEFT), "the name of a question or step must not be empty"),
    (lambda ctx: ctx.task.status("late"), "ctx.task must be used in a call that runs as a task; declare the tool with"),
    (lambda ctx: ctx.ask("Left?", int), "must begin with the question's name, but begins with its message; write ctx"),
    (
        lambda ctx: ctx.ask("~sleep", LEFT),
        "'~sleep' cannot name a question or step; use a name that does not begin with '~'",
    ),
]


async def test_mistaken_argument_is_named() -> None:
    texts = {told: await _told(body) for body, told in _MISTAKEN_ARGUMENTS}
    assert {told: text for told, text in texts.items() if told not in text} == {}


async def test_concurrent_unnamed_questions_error_asks_for_keys(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        async def put() -> None:
            await ctx.elicit("Sure?", Choice)

        async with anyio.create_task_group() as group:
            group.start_soon(put)
            group.start_soon(put)
        return "never"

    with anyio.fail_after(WAIT):
        user = User(shop(body), {re.compile("Sure"): {"ok": True}}, era=era, allow_unused=True)
        call = await user.call("order")
    assert call.text.startswith("Error executing tool order: two questions without a name= are pending")
    assert "ctx.ask_all" in call.text


async def test_sequential_unnamed_questions_keep_answers_despite_equal_words(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        answers = [await ctx.elicit("Sure?", Choice) for _ in range(3)]
        answers.append(await ctx.elicit("Really?", Choice))
        return " ".join(str(answer.data.ok) if answer.action == "accept" else answer.action for answer in answers)

    made = await User(
        shop(body),
        {
            re.compile("Sure"): [{"ok": True}, DECLINE, {"ok": False}],
            re.compile("Really"): {"ok": True},
        },
        era=era,
    ).call("order")
    assert made.text == "True decline False True"
    assert made.asked == ["Sure?", "Sure?", "Sure?", "Really?"]


class Silent(Person):
    """User who answers all but the first question, which the body gives up."""

    def __init__(self, scope: anyio.CancelScope, *replies: Any) -> None:
        super().__init__(*replies)
        self._scope: anyio.CancelScope | None = scope

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        if self._scope is not None:
            scope, self._scope = self._scope, None
            scope.cancel()
            await anyio.sleep_forever()
        return await super().__call__(context, params)


@pytest.mark.parametrize("asks_again", [True, False])
async def test_abandoned_question_does_not_count_as_pending(asks_again: bool) -> None:
    asking = anyio.CancelScope()

    async def body(ctx: Context[Any, Any]) -> str:
        with asking:
            await ctx.elicit("Quick?", Choice)
        return (await ctx.elicit("Sure?", Choice)).action if asks_again else "no one there"

    trace = Steps()
    with anyio.fail_after(WAIT):
        async with connect(shop(body, trace=trace), Era.LIVE, Silent(asking, {"ok": True})) as client:
            assert text_of(await client.call_tool("order")) == ("accept" if asks_again else "no one there")
    assert asking.cancelled_caught
    assert trace.events[-1] is Event.FINISH


async def test_one_name_of_two_questions_is_an_error() -> None:
    async def left() -> Elicit[int]:
        return LEFT

    async def step_and_question(ctx: Context[Any, Any]) -> None:
        await ctx.step("left", int)
        await ctx.ask("left", LEFT)

    async def resolver_and_question(ctx: Context[Any, Any], width: Annotated[int, Resolve(left)]) -> None:
        await ctx.ask("left", LEFT)

    async def former_of_a_later(ctx: Context[Any, Any]) -> None:
        await ctx.ask("left", LEFT)
        await ctx.ask("port", LEFT, former_names=["left"])

    async def former_of_an_earlier(ctx: Context[Any, Any]) -> None:
        await ctx.ask("port", LEFT, former_names=["left"])
        await ctx.ask("left", LEFT)

    async def former_of_both(ctx: Context[Any, Any]) -> None:
        await ctx.ask("port", LEFT, former_names=["left"])
        await ctx.ask("larboard", LEFT, former_names=["left"])

    async def former_and_resolver(ctx: Context[Any, Any], width: Annotated[int, Resolve(left)]) -> None:
        await ctx.ask("port", LEFT, former_names=["left"])

    cures: dict[Callable[..., Any], str] = {
        step_and_question: "f'item-{i}'",
        resolver_and_question: "f'item-{i}'",
        former_of_a_later: "question 'port' also has it in former_names=",
        former_of_an_earlier: "question 'port' also has it in former_names=",
        former_of_both: "question 'larboard' also has it in former_names=",
        former_and_resolver: "question 'port' also has it in former_names=",
    }
    told: dict[str, str] = {}
    for body, cure in cures.items():
        user = User(shop(body), {"left": 1, "port": 2}, era=Era.RETRY, allow_unused=True, allow_error=True)
        text = (await user.call("order")).text
        if "the name 'left' is used twice in one call" not in text or cure not in text:
            told[body.__name__] = text
    assert told == {}


MARKER = "Dune for 4711"


class Copies(BaseModel):
    copies: int = Field(ge=1)


def shop_of_copies(**options: Any) -> Server[Any]:
    server = Server[Any]("shop", **options)

    @server.tool()
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit(f'How many of "{MARKER}"?', Copies)
        return answer.action

    return server


WORDS = r'question "How many of \"Dune for 4711\"?"'


async def test_rejected_answer_names_the_words_of_its_question(
    era: Era, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level(logging.DEBUG, "roundtrip")
    caplog.set_level(logging.DEBUG, "mcp.server.mcpserver")
    server = shop_of_copies(trace=str(tmp_path / "calls.jsonl"))
    call = await User(server, too_few(), era=era).call("order")
    assert call.is_error
    assert f"{WORDS} was answered invalidly 3 times" in call.text
    assert "unnamed-" not in call.text
    assert MARKER not in caplog.text
    assert MARKER not in (tmp_path / "calls.jsonl").read_text()


def too_few() -> Any:
    return {re.compile("How many"): [{"copies": 0}] * 3}


async def test_unaskable_client_is_told_the_question_text(era: Era) -> None:
    with pytest.raises(MCPError) as rejected:
        await User(shop_of_copies(), era=era, missing_capabilities=["elicitation"]).call("order")
    assert rejected.value.error.message.endswith(WORDS)


async def test_swallowed_suspension_names_the_words() -> None:
    server = Server[Any]("shop")

    @server.tool()
    async def order(ctx: Context) -> str:
        try:
            await ctx.elicit("How many? " + "x" * 100, Copies)
        except BaseException:  # noqa: BLE001
            return "went on"
        return "done"

    call = await User(server, era=Era.RETRY).call("order")
    assert f'the exception with which "How many? {"x" * 70}..." ended the leg' in call.text
