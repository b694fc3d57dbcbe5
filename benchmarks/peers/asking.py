"""Rows about questions: who can be asked, from where, for what, and the rules for answers."""

from datetime import UTC, datetime
from enum import Enum
from itertools import count
from typing import Annotated, Any, Final

from fastmcp import Context as FastContext
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import Elicit, Resolve, Sample
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

from benchmarks.peers.clients import LIVE, Person, asks_where, call_text, connect, prompted, short
from benchmarks.peers.row import Row, times
from benchmarks.peers.servers import answer_to, asking, fast, ours, theirs
from roundtrip import Context, ElicitUrl
from roundtrip import Resolve as OurResolve

__all__ = ["ROWS"]


class Named(BaseModel):
    name: str


def ask_name() -> Elicit[Named]:
    return Elicit("Which name?", Named)


# The functions below have the SDK's markers. The SDK's server and roundtrip's register them unchanged.


def with_resolver(server: Any) -> Any:
    @server.tool()
    async def work(named: Annotated[Named, Resolve(ask_name)]) -> str:
        return named.name

    return server


def with_guard() -> Any:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        return answer_to(ctx, "name") or asking("name", "Which name?")

    return server


async def eras_ours() -> str:
    return "a resolver " + await asks_where(lambda: with_resolver(ours()))


async def eras_sdk() -> str:
    return "a resolver " + await asks_where(lambda: with_resolver(theirs()))


async def eras_fastmcp() -> str:
    return f"a guard {await asks_where(with_guard)}"


def in_body_ours() -> Any:
    server = ours()

    @server.tool()
    async def work(ctx: Context) -> str:
        return (await ctx.ask("name", "Which name?", Named)).name

    return server


def in_body_sdk() -> Any:
    server = theirs()

    @server.tool()
    async def work(ctx: SdkContext[Any, Any]) -> str:
        answer = await ctx.elicit("Which name?", Named)
        return answer.data.name if answer.action == "accept" else "not given"

    return server


def in_body_fastmcp() -> Any:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str:
        answer = await ctx.elicit("Which name?", Named)
        return answer.data.name if answer.action == "accept" else "not given"

    return server


async def body_ours() -> str:
    return f"`ctx.ask` {await asks_where(in_body_ours)}"


async def body_sdk() -> str:
    return f"`ctx.elicit` {await asks_where(in_body_sdk)}"


async def body_fastmcp() -> str:
    return f"`ctx.elicit` {await asks_where(in_body_fastmcp)}"


_PAGE: Final = "https://pay.example/1"


async def url_ours() -> str:
    def make() -> Any:
        server = ours()

        def pay() -> ElicitUrl[bool]:
            return ElicitUrl("Please pay.", _PAGE)

        @server.tool()
        async def work(paid: Annotated[bool, OurResolve(pay)]) -> str:
            return "done"

        return server

    return "`ElicitUrl` " + await asks_where(make)


async def url_sdk() -> str:
    def make() -> Any:
        server = theirs()

        @server.tool()
        async def work(ctx: SdkContext[Any, Any]) -> str:
            answer = await ctx.elicit_url("Please pay.", _PAGE, "1")
            return "done" if answer.action == "accept" else "not paid"

        return server

    return "`ctx.elicit_url` " + await asks_where(make)


async def url_fastmcp() -> str:
    def make() -> Any:
        server = fast()

        @server.tool
        async def work(ctx: FastContext) -> str | InputRequiredResult:
            if isinstance((ctx.input_responses or {}).get("pay"), ElicitResult):
                return "done"
            request = ElicitRequest(params=ElicitRequestURLParams(message="Please pay.", url=_PAGE))
            return InputRequiredResult(input_requests={"pay": request}, request_state="pay")

        return server

    return "a guard " + await asks_where(make)


_WORDS: Final = [SamplingMessage(role="user", content=TextContent(type="text", text="One word."))]


def ask_model() -> Sample:
    return Sample(_WORDS, max_tokens=10)


def with_sample(server: Any) -> Any:
    @server.tool()
    async def work(answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
        return answer.content.text if isinstance(answer.content, TextContent) else "no text"

    return server


async def model_ours() -> str:
    return "a resolver " + await asks_where(lambda: with_sample(ours()))


async def model_sdk() -> str:
    return "a resolver " + await asks_where(lambda: with_sample(theirs()))


async def model_fastmcp() -> str:
    def make() -> Any:
        server = fast()

        @server.tool
        async def work(ctx: FastContext) -> str | InputRequiredResult:
            answer = (ctx.input_responses or {}).get("word")
            if isinstance(answer, CreateMessageResult) and isinstance(answer.content, TextContent):
                return answer.content.text
            request = CreateMessageRequest(params=CreateMessageRequestParams(messages=_WORDS, max_tokens=10))
            return InputRequiredResult(input_requests={"word": request}, request_state="word")

        return server

    return "a guard " + await asks_where(make)


def with_prompt(server: Any) -> Any:
    @server.prompt()
    async def work(named: Annotated[Named, Resolve(ask_name)]) -> str:
        return named.name

    return server


async def prompt_ours() -> str:
    return "a resolver " + await asks_where(lambda: with_prompt(ours()), call=prompted)


async def prompt_sdk() -> str:
    async with connect(with_prompt(theirs())) as client:
        (prompt,) = (await client.list_prompts()).prompts
    listed = ", ".join(f"`{one.name}`" for one in prompt.arguments or [] if one.required)
    where = await asks_where(lambda: with_prompt(theirs()), call=prompted)
    return f"a resolver {where}; {listed} is a required argument" if listed else f"a resolver {where}"


async def prompt_fastmcp() -> str:
    def make() -> Any:
        server = fast()

        @server.prompt
        async def work(ctx: FastContext) -> str | InputRequiredResult:
            return answer_to(ctx, "name") or asking("name", "Which name?")

        return server

    return "a guard " + await asks_where(make, call=prompted)


class Place(Enum):
    front = "front"
    back = "back"


class Seat(BaseModel):
    row: Place


def ask_seat() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def with_enum(server: Any) -> Any:
    @server.tool()
    async def work(seat: Annotated[Seat, Resolve(ask_seat)]) -> str:
        return seat.row.value

    return server


async def enum_of(server: Any, mode: str) -> str:
    person = Person({"row": "back"})
    text = await call_text(server, mode=mode, person=person)
    return "the form shows a choice" if text == "back" else "the call fails"


async def enum_ours() -> str:
    return await enum_of(with_enum(ours()), "2026-07-28")


async def enum_sdk() -> str:
    return await enum_of(with_enum(theirs()), "2026-07-28")


async def enum_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str:
        answer = await ctx.elicit("Which row?", Seat)
        return answer.data.row.value if answer.action == "accept" else "not given"

    return f"on 2025-11-25, {await enum_of(server, LIVE)}"


class Copies(BaseModel):
    count: int = Field(le=9)


def ask_copies() -> Elicit[Copies]:
    return Elicit("How many?", Copies)


def with_bound(server: Any) -> Any:
    @server.tool()
    async def work(copies: Annotated[Copies, Resolve(ask_copies)]) -> str:
        return f"{copies.count} copies"

    return server


async def corrected(server: Any, mode: str = "2026-07-28") -> str:
    """Answer 10, and then 9 if asked again."""
    person = Person({"count": 10}, {"count": 9})
    text = await call_text(server, mode=mode, person=person)
    if text == "9 copies" and len(person.asked) == 2:
        return "asks again, then continues"
    return "ends the call with an error" if text.startswith("error") and len(person.asked) == 1 else short(text)


async def invalid_ours() -> str:
    return await corrected(with_bound(ours()))


async def invalid_sdk() -> str:
    return await corrected(with_bound(theirs()))


async def invalid_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str:
        answer = await ctx.elicit("How many?", Copies)
        return f"{answer.data.count} copies" if answer.action == "accept" else "not given"

    return f"on 2025-11-25, {await corrected(server, LIVE)}"


def with_time(server: Any) -> Any:
    ticks = count()

    def ask_now() -> Elicit[Named]:
        return Elicit(f"It is {datetime.now(UTC)}, tick {next(ticks)}. Which name?", Named)

    @server.tool()
    async def work(named: Annotated[Named, Resolve(ask_now)]) -> str:
        return named.name

    return server


async def ended(server: Any) -> str:
    person = Person({"name": "done"})
    text = await call_text(server, person=person)
    if text == "done":
        return f"asks {times(len(person.asked))}, then continues"
    culprit = "; the error names the question" if "ask_now" in text else "; the error does not name it"
    return f"asks {times(len(person.asked))}, then the call fails{culprit}"


async def time_ours() -> str:
    return await ended(with_time(ours()))


async def time_sdk() -> str:
    return await ended(with_time(theirs()))


async def time_fastmcp() -> str:
    server = fast()
    ticks = count()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        message = f"It is {datetime.now(UTC)}, tick {next(ticks)}. Which name?"
        return answer_to(ctx, "name") or asking("name", message)

    return await ended(server)


_ERAS_TEST: Final = "tests/interaction/protocol/test_eras.py::test_both_eras_give_the_same_result_by_the_same_path"

ROWS: Final = (
    Row(
        name="eras",
        feature="Ask clients of 2025-11-25 and 2026-07-28 from one function",
        test=_ERAS_TEST,
        roundtrip=eras_ours,
        sdk=eras_sdk,
        fastmcp=eras_fastmcp,
    ),
    Row(
        name="body",
        feature="Ask in the middle of a body",
        test="tests/interaction/bodies/test_gates.py::test_accepted_call_continues_with_its_own_questions",
        roundtrip=body_ours,
        sdk=body_sdk,
        fastmcp=body_fastmcp,
    ),
    Row(
        name="url",
        feature="Send the user to a page of your own",
        test="tests/interaction/pages/test_pages.py::test_elicit_url_in_a_resolver_waits_for_the_page",
        roundtrip=url_ours,
        sdk=url_sdk,
        fastmcp=url_fastmcp,
    ),
    Row(
        name="model",
        feature="Ask the client's model",
        test="tests/interaction/bodies/test_samples.py::test_a_sample_gives_text_and_the_whole_message",
        roundtrip=model_ours,
        sdk=model_sdk,
        fastmcp=model_fastmcp,
    ),
    Row(
        name="prompt",
        feature="Ask from a prompt",
        test="tests/interaction/handlers/test_asking.py::test_handler_asks_for_its_parameters_and_receives_the_answers",
        roundtrip=prompt_ours,
        sdk=prompt_sdk,
        fastmcp=prompt_fastmcp,
    ),
    Row(
        name="enum",
        feature="An `Enum` field in a form",
        test="tests/interaction/questions/test_forms.py::test_choices_single_and_multiple_with_and_without_titles",
        roundtrip=enum_ours,
        sdk=enum_sdk,
        fastmcp=enum_fastmcp,
    ),
    Row(
        name="invalid",
        feature="The first answer breaks a rule of the form",
        test="tests/interaction/questions/test_answers.py::test_invalid_then_valid_answer_complete_within_one_client_call",
        roundtrip=invalid_ours,
        sdk=invalid_sdk,
        fastmcp=invalid_fastmcp,
    ),
    Row(
        name="timestamp",
        feature="The message of a question has the time in it",
        test="tests/interaction/resolvers/test_volatile.py::test_timestamp_in_a_question_ends_the_call_with_advice",
        roundtrip=time_ours,
        sdk=time_sdk,
        fastmcp=time_fastmcp,
    ),
)
