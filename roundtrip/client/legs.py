"""The eras of the protocol, and one leg as a client sends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, cast

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
"""The requests that may ask questions (S1)."""

FinalResult = CallToolResult | GetPromptResult | ReadResourceResult
LegResult = FinalResult | InputRequiredResult

Asking = ElicitRequestFormParams | ElicitRequestURLParams | CreateMessageRequestParams | None
"""The parameters of a question on the wire; None for a question for roots, which has none."""


class Era(Enum):
    """An era of the protocol; the value is the `mode` of the SDK's client."""

    RETRY = FIRST_OF_RETRY_ERA
    """Questions are returned, and the client sends the request again with the answers."""
    LIVE = "legacy"
    """Questions come over the open connection."""
    AUTO = "auto"
    """The newest era that the server speaks."""


ERAS: Final = (Era.RETRY, Era.LIVE)
"""Both eras."""


@dataclass(frozen=True, slots=True)
class LegRequest:
    """One request of a call. The live era has one per call, the retry era one more than there are rounds."""

    name: str
    """The name of the tool or prompt, or the URI of the resource."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, InputResponse] | None = None
    """Answers to the questions of the last round, by their names."""
    state: str | None = None
    """The request state that came with those questions."""
    method: Method = "tools/call"
    meta: Mapping[str, Any] | None = None


async def send(session: ClientSession, leg: LegRequest, *, progress: ProgressFnT | None = None) -> LegResult:
    """Send one leg and return its result, which may be questions.

    Raises:
        MCPError: The server answered with an error of the protocol, or the connection was lost.
    """
    arguments = dict(leg.arguments)
    answers = dict(leg.answers) if leg.answers is not None else None
    more: dict[str, Any] = {"input_responses": answers, "request_state": leg.state, "meta": leg.meta}
    if leg.method == "prompts/get":
        return await session.get_prompt(leg.name, arguments, allow_input_required=True, **more)
    if leg.method == "resources/read":
        return await session.read_resource(leg.name, allow_input_required=True, **more)
    result = await session.call_tool(leg.name, arguments, progress_callback=progress, allow_input_required=True, **more)
    return cast("CallToolResult | InputRequiredResult", result)


def asking(request: InputRequest) -> Asking:
    """Return the parameters of a question."""
    return request.params if isinstance(request, ElicitRequest | CreateMessageRequest) else None
