"""A server that uses every feature with planted values, and calls that fail in every way."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Final, cast

import anyio
import pytest
from mcp.server.mcpserver.exceptions import ResourceError
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field, model_serializer

from roundtrip import Context, Depends, Elicit, ElicitUrl, Resolve, Sample, Server, ToolError, ToolResult
from roundtrip.testing import ACCEPT, CANCEL, DECLINE, Conversation, Era, LegByLeg, User, served
from tests.interaction.secrecy.markers import Markers
from tests.kit.waiting import WAIT
from tests.kit.wire import wire

__all__ = ["CALLS", "KEY", "Playing", "answers_do_not_fit", "everything_is_answered", "make_vault", "tools_fail"]

KEY: Final = b"the key of every instance of the vault"


class Owner(BaseModel):
    name: str
    pin: str = Field(max_length=40)


class Place(BaseModel):
    street: str
    floor: int = Field(ge=0, default=0)


class Shouted(BaseModel):
    x: str

    @model_serializer
    def shout(self) -> Any:
        return {"y": self.x}


def _sample(text: str) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return Sample([message], max_tokens=20)


def make_vault(plant: Markers, **options: Any) -> Server[Any]:
    """Make an instance of the vault."""
    server = Server[Any]("vault", keys=[KEY], ledger=options.pop("ledger", None), **options)
    secret_of_step, secret_of_once, secret_of_page = plant("step"), plant("once"), plant("done")

    async def number() -> str:
        return secret_of_once

    async def owner(number: Annotated[str, Resolve(number, remember=True)], box: str) -> Elicit[Owner]:
        del number
        return Elicit(f"Who owns box {box}?", Owner)

    async def entered() -> AsyncGenerator[str]:
        yield secret_of_step

    def finished() -> str:
        return secret_of_page

    @server.tool(confirm="Open {box} for {reason}?", timeout=WAIT)
    async def open_box(
        box: Annotated[str, Field(max_length=30)],
        reason: str,
        owner: Annotated[Owner, Resolve(owner)],
        ctx: Context,
        key: str = Depends(entered),
    ) -> str:
        """Ask in all ways, keep things, and send the user to a page."""
        await ctx.step("serial", lambda: secret_of_step)
        asked = await ctx.ask_all({"place": Elicit("Where?", Place), "hint": _sample(f"A hint for {reason}")})
        page = ElicitUrl("Log in.", f"https://vault.example/?t={ctx.call.ticket('login', unbound=True)}", done=finished)
        await ctx.ask("page", page)
        await ctx.review("sure", f"All right for {reason}?", ["place"])
        del asked
        return f"{box} is open"

    @server.tool(exactly_once=True)
    async def pay(amount: Annotated[str, Field(max_length=30)], owner_of: str, ctx: Context) -> str:
        """Run once."""
        await ctx.step("receipt", lambda: secret_of_step)
        await ctx.ask("ok", f"Pay {amount} to {owner_of}?", Owner)
        return f"paid {amount}"

    async def ask_place(box: str) -> Elicit[Place]:
        return Elicit(f"Where is {box}?", Place)

    @server.prompt()
    async def story(box: str, where: Annotated[Place, Resolve(ask_place)]) -> str:
        return f"A story of {box} in {where.street}"

    @server.prompt()
    async def counted(box: int) -> str:
        return f"{box}"

    @server.resource("vault://{box}/where")
    async def where(box: str, place: Annotated[Place, Resolve(ask_place)]) -> str:
        return f"{box} in {place.street}"

    @server.resource("vault://{box}/refused")
    async def refused(box: str) -> str:
        raise ResourceError("there is no such box")

    @server.resource("vault://{box}/broken")
    async def broken(box: str) -> str:
        raise RuntimeError("the author's words")

    @server.resource("vault://{box}/counted")
    async def counted_box(box: int) -> str:
        return str(box)

    @server.tool()
    async def by_hand(box: str, ctx: Context) -> Any:
        """Keep a state of its own."""
        if ctx.input_responses is None:
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            params = ElicitRequestFormParams(message="Who?", requested_schema=form)
            return InputRequiredResult(
                input_requests={"who": ElicitRequest(params=params)}, request_state=plant("state")
            )
        return "known"

    # What fails.

    @server.tool()
    async def too_much(box: str, ctx: Context) -> str:
        """Keep more than a token holds."""
        await ctx.step("large", lambda: secret_of_step * 60_000)
        await ctx.ask("go", f"{box}?", bool)
        return "never"

    @server.tool()
    async def not_kept(box: str, ctx: Context) -> str:
        """Keep what has no JSON form."""

        def unkept() -> int:
            return cast("Any", secret_of_step)

        await ctx.step("odd", unkept)
        return box

    @server.tool()
    async def unfit(box: str) -> Shouted:
        """Return what its own schema does not allow."""
        return Shouted(x=box)

    @server.tool()
    async def unsendable(box: str) -> ToolResult:
        """Return what cannot be sent."""
        return ToolResult(content="x", structured_content={box: object(), "a": secret_of_step})

    @server.tool(timeout=0.05)
    async def slow(box: str) -> str:
        """Take too long."""
        await anyio.sleep_forever()
        return box

    @server.tool()
    async def broken_tool(box: str) -> str:
        """Crash."""
        raise RuntimeError("the author's words")

    @server.tool()
    async def refusing(box: str) -> str:
        """Fail as foreseen."""
        raise ToolError("the author's words")

    @server.tool()
    async def restless(box: str, ctx: Context) -> str:
        """Ask something else each time."""
        await ctx.ask("when", f"{box} {plant('question')}?", Place)
        return "never"

    @server.tool()
    async def with_header(box: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Box"})], ctx: Context) -> str:
        """Have a header repeat an argument."""
        await ctx.ask("go", f"{box}?", Place)
        return "done"

    async def leaving() -> AsyncGenerator[str]:
        yield secret_of_step
        raise RuntimeError("the author's words")

    @server.tool()
    async def left(box: str, key: str = Depends(leaving)) -> str:
        """Leave a dependency that fails."""
        return "done"

    return server


class Playing:
    """Calls of one client, all values of which are planted."""

    def __init__(self, target: Any, plant: Markers, era: Era, **options: Any) -> None:
        self.target = target
        self.plant = plant
        self.era = era
        self.options = options
        self.told: list[str] = []

    def owner(self) -> dict[str, Any]:
        return {"name": self.plant("answer"), "pin": self.plant("answer")}

    def place(self) -> dict[str, Any]:
        return {"street": self.plant("answer"), "floor": 1}

    def user(self, answers: Any = None) -> User:
        return User(self.target, answers or {}, era=self.era, allow_error=True, allow_unused=True, **self.options)

    def hear(self, call: Conversation) -> Conversation:
        """Look for what the server has made on the way; keep the client's text of a failure."""
        self.plant.note("token", call.tokens)
        for question in call.questions:
            self.plant.note_tickets(question.url or "")
        if call.error is not None:
            self.told.append(call.error.error.model_dump_json())
        elif call.is_error:
            self.told.append(call.text)
        return call

    async def call(self, tool: str, answers: Any = None, **arguments: Any) -> Conversation:
        return self.hear(await self.user(answers).call(tool, arguments))

    async def legs(self, tool: str, **arguments: Any) -> LegByLeg:
        """Start a call, up to its first questions, to be continued by hand."""
        legs = LegByLeg(self.target)
        await legs.leg(tool, arguments)
        self.plant.note("token", [legs.token])
        return legs

    async def refused(self, legs: LegByLeg, tool: str, answers: Any, state: str, **arguments: Any) -> None:
        """Send a leg that fails."""
        with pytest.raises(MCPError) as refused:
            await legs.leg(tool, arguments, answers=answers, state=state)
        self.told.append(refused.value.error.model_dump_json())


# What is done with the vault: each takes what plays, and looks at nothing.


async def everything_is_answered(play: Playing) -> None:
    await play.call("open_box", _opening(play), box=play.plant("argument"), reason=play.plant("argument"))
    await play.call("pay", {"ok": play.owner()}, amount=play.plant("argument"), owner_of=play.plant("argument"))
    await play.call("by_hand", {"who": {"name": play.plant("answer")}}, box=play.plant("argument"))
    await play.call("with_header", {"go": play.place()}, box=play.plant("argument"))
    await play.call("left", box=play.plant("argument"))
    where = {"ask_place": play.place()}
    play.hear(await play.user(where).get_prompt("story", box=play.plant("argument")))
    play.hear(await play.user(where).read_resource(f"vault://{play.plant('argument')}/where"))


async def arguments_do_not_fit(play: Playing) -> None:
    long = play.plant("argument") * 4
    await play.call("open_box", box=long, reason=play.plant("argument"))
    await play.call("open_box", box=play.plant("argument"))
    await play.call("open_box", box={"a": play.plant("argument")}, reason=[play.plant("argument")])
    await play.call("pay", amount=long, owner_of=play.plant("argument"))
    play.hear(await play.user().get_prompt("counted", box=play.plant("argument")))
    play.hear(await play.user().get_prompt("story", crate=play.plant("argument")))
    for kind in ("counted", "refused", "broken", "unheard-of"):
        play.hear(await play.user().read_resource(f"vault://{play.plant('argument')}/{kind}"))
    await play.call(play.plant("argument"), box=play.plant("argument"))
    play.hear(await play.user().get_prompt(play.plant("argument"), box=play.plant("argument")))


async def answers_do_not_fit(play: Playing) -> None:
    box = {"box": play.plant("argument"), "reason": play.plant("argument")}
    for wrong in ({"name": play.plant("answer"), "pin": play.plant("answer") * 4}, {"pin": [play.plant("answer")]}):
        await play.call("open_box", _opening(play, owner=wrong), **box)
    for name, wrong in (
        ("place", {"street": play.plant("answer"), "floor": play.plant("answer")}),
        ("place", {"street": play.plant("answer"), "floor": -3}),
    ):
        await play.call("open_box", _opening(play, **{name: wrong}), **box)
    await play.call("pay", {"ok": {"name": [play.plant("answer")]}}, amount="1", owner_of=play.plant("argument"))


async def users_decline(play: Playing) -> None:
    box = {"box": play.plant("argument"), "reason": play.plant("argument")}
    await play.call("open_box", {"confirm:open_box": DECLINE}, **box)
    await play.call("open_box", _opening(play, owner=CANCEL), **box)
    await play.call("open_box", _opening(play, page=DECLINE), **box)


async def clients_cannot_be_asked(play: Playing) -> None:
    none: Any = {"missing_capabilities": {"elicitation", "sampling"}}
    user = User(play.target, {}, era=play.era, allow_error=True, **none, **play.options)
    play.hear(await user.call("open_box", {"box": play.plant("argument"), "reason": play.plant("argument")}))
    play.hear(await user.get_prompt("story", box=play.plant("argument")))


async def tools_fail(play: Playing) -> None:
    tools = ("not_kept", "unfit", "unsendable", "slow", "broken_tool", "refusing")
    for tool in tools:
        await play.call(tool, box=play.plant("argument"))
    await play.call("too_much", {"go": True}, box=play.plant("argument"))
    await play.call("restless", {"when": play.place()}, box=play.plant("argument"))


async def tokens_are_refused(play: Playing) -> None:
    if play.era is Era.LIVE:
        return
    box = {"box": play.plant("argument"), "reason": play.plant("argument")}
    legs = await play.legs("open_box", **box)
    answers = {"confirm:open_box": ACCEPT}
    # One token in 256 ends with AA.
    other_end = "AQ" if legs.token.endswith("AA") else "AA"
    for state in (legs.token[:-1], legs.token[:-2] + other_end, legs.token[3:], play.plant("token") * 3):
        await play.refused(legs, "open_box", answers, state, **box)
    await play.refused(legs, "open_box", answers, legs.token, **{**box, "reason": play.plant("argument")})
    await play.refused(legs, "pay", answers, legs.token, amount=play.plant("argument"), owner_of="1")
    await legs.leg("open_box", box, answers={"confirm:open_box": play.owner()}, state=legs.token)
    await legs.leg("open_box", box, answers={play.plant("answer"): play.owner()}, state=legs.token)


async def headers_are_refused(play: Playing) -> None:
    """Send requests with invalid headers."""
    if play.options["over"] == "memory" or play.era is Era.LIVE:
        return
    async with served(play.target) as url, wire(url) as post:
        for header in ("Authorization", "Cookie", "Mcp-Param-Box", "X-Secret", "Mcp-Session-Id"):
            arguments = {"name": "with_header", "arguments": {"box": play.plant("argument")}}
            told = await post.post("tools/call", arguments, headers={header: f"Bearer {play.plant('header')}"})
            play.told.append(json.dumps(told))


def _opening(play: Playing, **other: Any) -> dict[str, Any]:
    """Form that opens a box."""
    return {
        "confirm:open_box": ACCEPT,
        "owner": play.owner(),
        "place": play.place(),
        "hint": play.plant("sample"),
        "page": ACCEPT,
        "sure": {"place.street": play.plant("answer"), "place.floor": 2},
    } | other


CALLS: Final[tuple[Callable[[Playing], Awaitable[None]], ...]] = (
    everything_is_answered,
    arguments_do_not_fit,
    answers_do_not_fit,
    users_decline,
    clients_cannot_be_asked,
    tools_fail,
    tokens_are_refused,
    headers_are_refused,
)
