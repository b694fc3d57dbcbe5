"""A server that rehearses recorded calls, behind a real client that declares what the recorded one could answer."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
from mcp.client import Client
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from roundtrip.checking.recorded import Answer, Kind, NotReplayable, RecordedCall
from roundtrip.client.legs import Era, LegRequest, Method, send
from roundtrip.machine.journal import Journal
from roundtrip.machine.pins import Pinner
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.rehearsal import End, Rehearsal, rehearsing
from roundtrip.server.server import Server

__all__ = ["Played", "Stage", "open_stage"]


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one leg."""

    end: End
    questions: tuple[PendingQuestion, ...] = ()
    journal: Journal | None = None
    told: str = ""
    """Why it ended, where it did not ask and its body did not run."""
    unseen: str | None = None
    """What is hidden from whoever checks, and was served all the same."""


class Stage:
    """Plays legs, one after the other. Made by `open_stage`."""

    def __init__(self, server: Server[Any], rehearsal: Rehearsal, clients: AsyncExitStack, *, seconds: float) -> None:
        self._server = server
        self._rehearsal = rehearsal
        self._open = clients
        self._seconds = seconds
        self._clients: dict[frozenset[Kind], Client] = {}

    @property
    def pinner(self) -> Pinner:
        """Makes the pins that the server takes."""
        return self._server.journal_codec.pinner

    def names_of(self, call: RecordedCall, key: str) -> tuple[str, ...]:
        """A question's name and its former ones, as the code says now."""
        plan = self._server.plan_of(call.name, call.version) if call.method == "tools/call" else None
        index = plan.names.get(key) if plan is not None else None
        return (key,) if plan is None or index is None else plan.nodes[index].names

    async def leg(self, call: RecordedCall, journal: Journal | None, answers: Sequence[Answer]) -> Played:
        """Serve one leg of a call: its first one, or the one that brings answers to what the journal has asked."""
        responses = {answer.question.key: response for answer in answers if (response := _response(answer)) is not None}
        client = await self._client(call.kinds)
        self._rehearsal.next(journal)
        told = ""
        try:
            with anyio.fail_after(self._seconds):
                result = await self._send(client.session, call, responses)
        except TimeoutError:
            return Played(End.FAILED, told=f"it was not done within {self._seconds:g} s (see --timeout)")
        except MCPError as error:
            told = error.error.message
        else:
            if isinstance(result, CallToolResult) and result.is_error:
                told = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        done = self._rehearsal.rehearsed
        if done.refusal is not None:
            told = done.refusal
        elif done.error is not None:
            told = f"{type(done.error).__name__}: {done.error}"
        if done.called is not None:
            raise NotReplayable(f"{done.called} is called while its parameters are filled, and a check runs no bodies")
        if done.end is End.UNREACHED and not told:
            told = "something in front of its function answers in its place, such as a middleware"
        return Played(done.end, done.questions, done.journal, told, done.unseen)

    async def _send(self, session: ClientSession, call: RecordedCall, responses: dict[str, InputResponse]) -> BaseModel:
        leg = LegRequest(call.name, call.arguments, answers=responses or None, method=cast("Method", call.method))
        if call.method == "tools/call":
            # New calls get the highest version, but this one began with its own.
            meta = None if call.version is None else {"roundtrip/version": call.version}
            return await send(session, replace(leg, meta=meta))
        if call.method == "prompts/get":
            self._require_legs(served=self._server.is_served_in_legs("prompt", call.name), what="prompt")
            return await send(session, leg)
        uri = UriTemplate.parse(call.name).expand({name: str(value) for name, value in call.arguments.items()})
        first = next(iter(self._server.resources_for(uri)), None)
        served = first == call.name and self._server.is_served_in_legs("resource", call.name)
        self._require_legs(served=served, what="resource template")
        return await send(session, replace(leg, name=uri))

    def _require_legs(self, *, served: bool, what: str) -> None:
        """Keep a function from running that could not be stopped."""
        if not served:
            raise MCPError(code=0, message=f"there is no {what} of that name that asks")

    async def _client(self, kinds: frozenset[Kind]) -> Client:
        client = self._clients.get(kinds)
        if client is None:
            forms = bool(kinds & {"form", "page"})
            client = Client(
                self._server,
                mode=Era.RETRY.value,
                elicitation_callback=_elicit if forms else None,
                sampling_callback=_sample if "sample" in kinds else None,
                sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability())
                if "sample" in kinds
                else None,
                list_roots_callback=_list_roots if "roots" in kinds else None,
            )
            self._clients[kinds] = await self._open.enter_async_context(client)
        return client


@asynccontextmanager
async def open_stage(server: Server[Any], *, seconds: float) -> AsyncGenerator[Stage]:
    """Rehearse with a server, which is started as for its clients, and ended afterwards.

    Args:
        server: The server. It must not serve anybody else meanwhile.
        seconds: How long a leg may take.
    """
    async with AsyncExitStack() as clients:
        with rehearsing(server) as rehearsal:
            yield Stage(server, rehearsal, clients, seconds=seconds)


def _response(answer: Answer) -> InputResponse | None:
    """An answer as the client sent it; None for what cannot be sent."""
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


async def _elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    del context, params
    raise MCPError(code=0, message="a rehearsal answers with the next leg")


async def _sample(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    del context, params
    raise MCPError(code=0, message="a rehearsal answers with the next leg")


async def _list_roots(context: ClientRequestContext) -> ListRootsResult:
    del context
    raise MCPError(code=0, message="a rehearsal answers with the next leg")
