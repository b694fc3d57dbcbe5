"""A handler within a handler, and handlers that ask by hand."""

import re
from typing import Annotated, Any

import pytest
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

from roundtrip import Context, InvalidSignature, Resolve, Server
from roundtrip.questions.forms import form_of
from roundtrip.testing import Answers, Era, User
from tests.interaction.handlers.asking import Legs, Tone, add, ask_tone, kinds, said
from tests.kit.secrets import NEW

pytestmark = pytest.mark.anyio


def nested(place: str, reached: list[str]) -> Server[Any]:
    """Make a tool that reads a template which asks."""
    server = Server[Any]("shop", keys=[NEW])

    async def by_resolver(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        return f"{title}: {tone.tone}"

    async def by_body(title: str, ctx: Context) -> str:
        tone = await ctx.ask("tone", f"Praise {title} in what tone?", Tone)
        return f"{title}: {tone.tone}"

    server.resource("praise://{title}")(by_resolver if place == "resolver" else by_body)

    @server.tool()
    async def collect(ctx: Context) -> str:
        parts = [part.content for part in await ctx.read_resource("praise://Dune")]
        reached.append("after")
        return str(parts[0])

    return server


@pytest.mark.parametrize("place", ["resolver", "body"])
async def test_asking_template_is_rejected_inside_a_suspending_tool(place: str) -> None:
    """Shows S3. Its questions are not the tool's, and no token could bring their answers back to it."""
    reached: list[str] = []
    call = await User(nested(place, reached)).call("collect")
    assert call.is_error
    assert call.text.startswith("Error executing tool collect: ctx.read_resource() must read a resource that does not")
    assert "got 'praise://Dune'" in call.text
    assert (call.questions, reached) == ([], [])
    # A live client answers within the request.
    answers: Answers = {re.compile("Praise Dune"): {"tone": "dry"}}
    call = await User(nested(place, reached), answers, era=Era.LIVE).call("collect")
    assert call.text == "Dune: dry"
    assert (call.asked, reached) == (["Praise Dune in what tone?"], ["after"])


async def test_template_without_open_questions_is_read_inside_a_tool(era: Era) -> None:
    server = Server[Any]("shop")

    async def shop() -> str:
        return "the shop"

    @server.resource("praise://{title}")
    async def praise(title: str, shop: Annotated[str, Resolve(shop)]) -> str:
        return f"{shop} praises {title}"

    @server.tool()
    async def collect(ctx: Context) -> str:
        sure = await ctx.ask("sure", "In what tone?", Tone)
        (part,) = await ctx.read_resource("praise://Dune")
        return f"{part.content}, {sure.tone}"

    assert (await User(server, {"sure": {"tone": "dry"}}, era=era).call("collect")).text == "the shop praises Dune, dry"


# By hand.


def form() -> ElicitRequest:
    schema = dict(form_of(Tone).schema)
    return ElicitRequest(params=ElicitRequestFormParams(message="In what tone?", requested_schema=schema))


def by_hand(kind: str, *, state: str | None) -> Server[Any]:
    server = Server[Any]("shop", keys=[NEW])

    async def praise(title: str, ctx: Context) -> str | InputRequiredResult:
        answer = (ctx.input_responses or {}).get("tone")
        if not isinstance(answer, ElicitResult) or answer.content is None:
            return InputRequiredResult(input_requests={"tone": form()}, request_state=state)
        return f"{title}: {answer.content['tone']}, {ctx.request_state}"

    return add(server, kind, praise)


@kinds
@pytest.mark.parametrize("state", ["page 7", None])
async def test_a_handler_may_still_ask_by_hand(kind: str, state: str | None) -> None:
    """Shows S1, S2."""
    legs = Legs(lambda: by_hand(kind, state=state), kind)
    await legs("Dune")
    assert legs.asked == ["tone"]
    assert state is None or "page 7" not in (legs.token or "")
    assert said(await legs("Dune", {"tone": {"tone": "dry"}})) == f"Dune: dry, {state}"


@kinds
def test_a_handler_asks_in_one_way_alone(kind: str) -> None:
    server = Server[Any]("shop")

    async def praise(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str | InputRequiredResult:
        return title

    with pytest.raises(InvalidSignature, match=r"praise.*in one of these two ways"):
        add(server, kind, praise)
