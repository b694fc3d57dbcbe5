"""The eras of the protocol, and one leg as a client sends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    GetPromptResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ReadResourceResult,
)

from roundtrip.revisions import FIRST_OF_RETRY_ERA

__all__ = ["ERAS", "Asking", "Era", "FinalResult", "LegRequest", "LegResult", "Method", "asking", "send"]

Method = Literal["tools/call", "prompts/get", "resources/read"]
"""What may ask (S1)."""

FinalResult = CallToolResult | GetPromptResult | ReadResourceResult
LegResult = FinalResult | InputRequiredResult

Asking = ElicitRequestFormParams | ElicitRequestURLParams | CreateMessageRequestParams | None
"""What a question looks like on the wire; None for that of a client's roots, which says nothing."""


class Era(Enum):
    """An era of the protocol; the value is what the SDK's client is told."""

    RETRY = FIRST_OF_RETRY_ERA
    """Questions are returned, and the client sends the request again with the answers."""
    LIVE = "legacy"
    """Questions come over the open connection."""
    AUTO = "auto"
    """Whatever the server speaks, the newer one first."""


ERAS: Final = (Era.RETRY, Era.LIVE)
"""Those that there are."""


@dataclass(frozen=True, slots=True)
class LegRequest:
    """One request of a call. A call has one on the live era, and one more than it has rounds on the retry era."""

    name: str
    """The tool's name, the prompt's, or the resource's URI."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, InputResponse] | None = None
    """Answers to the questions of the last round, by their names."""
    state: str | None = None
    """The request state that came with those questions."""
    method: Method = "tools/call"
    meta: Mapping[str, Any] | None = None


async def send(session: ClientSession, leg: LegRequest, *, progress: ProgressFnT | None = None) -> LegResult:
    """Send one leg; the result may be questions.

    Raises:
        MCPError: The server answered with an error of the protocol, or the connection was lost.
    """
    answers = dict(leg.answers) if leg.answers is not None else None
    arguments = dict(leg.arguments)
    meta: Any = leg.meta
    if leg.method == "prompts/get":
        return await session.get_prompt(
            leg.name,
            arguments,
            input_responses=answers,
            request_state=leg.state,
            meta=meta,
            allow_input_required=True,
        )
    if leg.method == "resources/read":
        return await session.read_resource(
            leg.name, input_responses=answers, request_state=leg.state, meta=meta, allow_input_required=True
        )
    return await session.call_tool(
        leg.name,
        arguments,
        progress_callback=progress,
        input_responses=answers,
        request_state=leg.state,
        meta=meta,
        allow_input_required=True,
    )


def asking(request: InputRequest) -> Asking:
    """The question in a request that came with a round."""
    return request.params if isinstance(request, ElicitRequest | CreateMessageRequest) else None
