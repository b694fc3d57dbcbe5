"""Rehearsal of single legs through a real client. The client declares the same capabilities as the recorded client."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    CallToolResult,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from roundtrip.approvals.markers import ApprovalState
from roundtrip.checking.recorded import Answer, Kind, NotReplayable, RecordedCall
from roundtrip.checking.rehearsal import Bodies, End, Rehearsal, RehearsedLeg, rehearsing
from roundtrip.client.legs import Era, LegRequest, Method, callbacks, never_live, send
from roundtrip.machine.journal import Journal
from roundtrip.machine.pins import Pinner
from roundtrip.server.attach import Attached


class ReplayServer:
    """A server in rehearsal, and the clients that play single legs on it. Use `open_replay_server` to create it."""

    def __init__(self, server: Attached, rehearsal: Rehearsal, clients: AsyncExitStack, *, seconds: float) -> None:
        self._server = server
        self._rehearsal = rehearsal
        self._open = clients
        self._seconds = seconds
        self._clients: dict[frozenset[Kind], Client] = {}

    @property
    def pinner(self) -> Pinner:
        """Return the pinner whose pins the server accepts."""
        return self._server.parts.protection.journals.pinner

    async def play_leg(
        self,
        call: RecordedCall,
        journal: Journal | None,
        answers: Sequence[Answer],
        decisions: Mapping[str, ApprovalState],
        bodies: Bodies,
    ) -> RehearsedLeg:
        """Serve one leg of a call: the first leg, or a leg that answers a journal's questions.

        Args:
            call: The call.
            journal: The previous leg's journal; None for the first leg.
            answers: The answers that the request brings.
            decisions: The call's approval decisions.
            bodies: The point up to which the body runs.
        """
        responses = {answer.question.key: response for answer in answers if (response := _response(answer)) is not None}
        client = await self._client(call.kinds)
        self._rehearsal.next(journal, decisions, bodies)
        reason, result = "", None
        try:
            with anyio.fail_after(self._seconds):
                result = await self._send(client.session, call, responses)
        except TimeoutError:
            return RehearsedLeg(End.FAILED, reason=f"the leg took longer than {self._seconds:g} s (see --timeout)")
        except MCPError as error:
            reason = error.error.message
        else:
            if isinstance(result, CallToolResult) and result.is_error:
                reason = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        leg = self._rehearsal.rehearsed
        leg.result = result
        if leg.called is not None:
            raise NotReplayable(f"it calls {leg.called}, whose body runs only with `roundtrip trace fork --run`")
        if not leg.reason:
            is_silent = leg.end is End.UNREACHED and not reason
            leg.reason = "middleware, or other code before the function, returned a result" if is_silent else reason
        return leg

    async def _send(self, session: ClientSession, call: RecordedCall, responses: dict[str, InputResponse]) -> BaseModel:
        leg = LegRequest(call.name, call.arguments, answers=responses or None, method=cast("Method", call.method))
        if call.method == "tools/call":
            # By default, a new call gets the highest version, so request the recorded version.
            meta = None if call.version is None else {"roundtrip/version": call.version}
            return await send(session, replace(leg, meta=meta))
        kind = "prompt" if call.method == "prompts/get" else "resource"
        if kind == "resource":
            uri = UriTemplate.parse(call.name).expand({name: str(value) for name, value in call.arguments.items()})
            leg = replace(leg, name=uri)
        if self._server.asking_item(kind, leg.name) != call.name:
            # If the server does not serve this item in legs, the check could not stop before the item's body.
            name = "prompt" if kind == "prompt" else "resource template"
            raise MCPError(code=0, message=f"the server has no {name} with this name that can ask questions")
        return await send(session, leg)

    async def _client(self, kinds: frozenset[Kind]) -> Client:
        client = self._clients.get(kinds)
        if client is None:
            declared = callbacks(
                never_live,
                elicit=bool(kinds & {"form", "page"}),
                sample="sample" in kinds,
                list_roots="roots" in kinds,
            )
            tools = SamplingCapability(tools=SamplingToolsCapability()) if "sample" in kinds else None
            target = self._server.low_level
            client = Client(target, mode=Era.RETRY.mode, sampling_capabilities=tools, **declared)
            self._clients[kinds] = await self._open.enter_async_context(client)
        return client


@asynccontextmanager
async def open_replay_server(server: Attached, *, seconds: float) -> AsyncGenerator[ReplayServer]:
    """Start a server for rehearsals, and stop it when the block ends.

    Args:
        server: The server. It must not serve other clients during the rehearsal.
        seconds: The time limit of a leg.
    """
    # Keep the rehearsal open longer than the clients, so that it also covers the end of the server's lifespan.
    with rehearsing(server) as rehearsal:
        async with AsyncExitStack() as clients:
            yield ReplayServer(server, rehearsal, clients, seconds=seconds)


def _response(answer: Answer) -> InputResponse | None:
    """Return an answer in the form that the client sent, or None if it cannot be sent."""
    if answer.action is None:
        return None
    kind = answer.question.kind
    try:
        if kind in ("form", "page"):
            content: Any = answer.data
            return ElicitResult(action=answer.action.word, content=content)
        if kind == "roots":
            return ListRootsResult.model_validate(answer.data)
        result = CreateMessageResultWithTools if answer.question.with_tools else CreateMessageResult
        return result.model_validate(answer.data)
    except ValidationError:
        return None
