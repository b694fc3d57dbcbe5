"""Real MCP clients, for testing declared capabilities and messages during a call."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

from roundtrip.testing import Era
from roundtrip.testing.networks.fleet import Instance

__all__ = [
    "Answerer",
    "Person",
    "Reply",
    "call",
    "connect",
    "reply_of",
    "roots",
    "sample",
    "text_of",
]


Reply = ElicitResult | Mapping[str, Any] | str
"""A scripted answer to a form: a whole result, an accepted form's content, or `decline` / `cancel`."""

Answerer = Callable[[ElicitRequestFormParams], Reply]


def reply_of(reply: Reply) -> ElicitResult:
    if isinstance(reply, ElicitResult):
        return reply
    if isinstance(reply, str):
        return ElicitResult.model_validate({"action": reply})
    return ElicitResult(action="accept", content=dict(reply))


class Person:
    """User who answers forms in order or with a function. `asked` records the questions."""

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
    """Answer like a model that repeats the last message."""
    del context
    said = params.messages[-1].content
    text = said.text if isinstance(said, TextContent) else "?"
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=f"echo: {text}"), model="m")


async def roots(context: ClientRequestContext) -> ListRootsResult:
    del context
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/user/books"), name="books")])


@asynccontextmanager
async def connect(server: Instance, era: Era, person: Person | None = None, **options: Any) -> AsyncGenerator[Client]:
    """Connect a real client. It declares forms only with a `person`."""
    async with Client(cast("Any", server), mode=era.value, elicitation_callback=person, **options) as client:
        yield client


async def call(
    server: Instance,
    era: Era,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *replies: Reply,
    answer: Answerer | None = None,
    **options: Any,
) -> CallToolResult:
    """Make one whole call with these replies."""
    person = Person(*replies, answer=answer)
    async with connect(server, era, person, **options) as client:
        return await client.call_tool(tool, arguments or {})


def text_of(result: CallToolResult | InputRequiredResult) -> str:
    """Return the text in a final result with a single text block."""
    if isinstance(result, InputRequiredResult):
        raise AssertionError(f"the call still asks {list(result.input_requests or {})}")
    (block,) = result.content
    if not isinstance(block, TextContent):
        raise TypeError(f"a text block was expected, not {block.type}")
    return block.text
