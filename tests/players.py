"""Real MCP clients for tests: one answers by a script on either era, one hops to another server with every leg."""

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

from roundtrip import Event, State, Step
from roundtrip.clients.legs import ERAS, Era
from tests.tap import Tap

__all__ = [
    "ERAS",
    "Answerer",
    "Era",
    "Hopper",
    "Person",
    "Reply",
    "Target",
    "Trace",
    "call",
    "connect",
    "reply_of",
    "roots",
    "sample",
    "text_of",
]


Reply = ElicitResult | Mapping[str, Any] | str
"""A scripted answer to a form: a whole result, the content of an accepted one, or `decline` / `cancel`."""

Answerer = Callable[[ElicitRequestFormParams], Reply]

Target = MCPServer[Any] | StdioServerParameters | Tap | str
"""A server in this process, a command that serves stdio, a tapped transport, or a URL."""


def reply_of(reply: Reply) -> ElicitResult:
    if isinstance(reply, ElicitResult):
        return reply
    if isinstance(reply, str):
        return ElicitResult.model_validate({"action": reply})
    return ElicitResult(action="accept", content=dict(reply))


class Person:
    """Answers forms in the order given, or by a function of the question; keeps what was asked in `asked`."""

    def __init__(self, *replies: Reply, answer: Answerer | None = None) -> None:
        self._replies = iter(replies)
        self._answer = answer
        self.asked: list[ElicitRequestFormParams] = []

    @property
    def messages(self) -> list[str]:
        return [params.message for params in self.asked]

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        if not isinstance(params, ElicitRequestFormParams):
            raise TypeError("only forms are scripted")
        self.asked.append(params)
        return reply_of(self._answer(params) if self._answer is not None else next(self._replies))


async def sample(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    """A model that says back what it was told."""
    del context
    said = params.messages[-1].content
    text = said.text if isinstance(said, TextContent) else "?"
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=f"echo: {text}"), model="m")


async def roots(context: ClientRequestContext) -> ListRootsResult:
    del context
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/user/books"), name="books")])


@asynccontextmanager
async def connect(server: Target, era: Era, person: Person | None = None, **options: Any) -> AsyncGenerator[Client]:
    """A real client. It declares what it can answer: forms only with a `person`."""
    async with Client(server, mode=era.value, elicitation_callback=person, **options) as client:
        yield client


async def call(
    server: Target,
    era: Era,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *replies: Reply,
    answer: Answerer | None = None,
    **options: Any,
) -> CallToolResult:
    """One whole call by a person who gives these replies."""
    person = Person(*replies, answer=answer)
    async with connect(server, era, person, **options) as client:
        return await client.call_tool(tool, arguments or {})


def text_of(result: CallToolResult | InputRequiredResult) -> str:
    """The text of a final result with a single text block."""
    if isinstance(result, InputRequiredResult):
        raise AssertionError(f"the call still asks {list(result.input_requests or {})}")
    (block,) = result.content
    if not isinstance(block, TextContent):
        raise TypeError(f"a text block was expected, not {block.type}")
    return block.text


class Trace:
    """An observer that keeps every step: give it to a server as `trace=`."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, step: Step) -> None:
        self.steps.append(step)

    @property
    def events(self) -> list[Event]:
        return [step.event for step in self.steps]

    @property
    def path(self) -> list[State]:
        """The states the calls went through, the first step's source first."""
        return [self.steps[0].source, *(step.target for step in self.steps)] if self.steps else []

    @property
    def asked(self) -> list[dict[str, str]]:
        """Per round of questions, each key with why it was asked."""
        return [dict(step.detail["reasons"]) for step in self.steps if "reasons" in step.detail]


class Hopper:
    """Plays a call of the retry era leg by leg, each leg on the next of some servers, through a real client each time.

    `legs` keeps every question round; `token` is the state of the last one.
    """

    def __init__(self, servers: Iterable[Target] | Callable[[], Target], **options: Any) -> None:
        self._servers = iter(servers, None) if callable(servers) else itertools.cycle(list(servers))
        self._options = options
        self.legs: list[InputRequiredResult] = []

    @property
    def token(self) -> str:
        state = self.legs[-1].request_state
        if state is None:
            raise AssertionError("the last leg carried no request state")
        return state

    @property
    def questions(self) -> dict[str, InputRequest]:
        return dict(self.legs[-1].input_requests or {})

    async def leg(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        *,
        answers: Mapping[str, Reply | InputResponse] | None = None,
        state: str | None = None,
        meta: Any = None,
    ) -> CallToolResult | InputRequiredResult:
        """One leg, on the next server."""
        responses: dict[str, InputResponse] | None = None
        if answers is not None:
            responses = {
                key: reply_of(reply) if isinstance(reply, str | Mapping) else reply for key, reply in answers.items()
            }

        async def never(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            raise AssertionError("a retry-era question is answered by the next leg")

        options: dict[str, Any] = {"elicitation_callback": never, **self._options}
        refused: MCPError | None = None
        result: CallToolResult | InputRequiredResult | None = None
        async with Client(next(self._servers), mode=Era.RETRY.value, **options) as client:
            try:
                result = await client.session.call_tool(
                    tool,
                    arguments or {},
                    input_responses=responses,
                    request_state=state,
                    meta=meta,
                    allow_input_required=True,
                )
            except MCPError as error:
                # Raised in here it would leave the client inside an exception group.
                refused = error
        if refused is not None or result is None:
            raise refused or AssertionError("no answer")
        if isinstance(result, InputRequiredResult):
            self.legs.append(result)
        return result

    async def play(
        self, tool: str, arguments: dict[str, Any] | None, replies: Sequence[Mapping[str, Reply]]
    ) -> CallToolResult:
        """A whole call: one mapping of replies per round."""
        result = await self.leg(tool, arguments)
        for reply in replies:
            result = await self.leg(tool, arguments, answers=reply, state=self.token)
        if isinstance(result, InputRequiredResult):
            raise AssertionError(f"the call still asks {list(self.questions)}")
        return result
