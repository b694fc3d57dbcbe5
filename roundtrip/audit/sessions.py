"""The audit's session, which sends requests within limits, and plays honest calls."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, cast

import anyio
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map
from mcp_types import ElicitRequest

from roundtrip.audit.findings import AuditNotes, ToolNotes
from roundtrip.audit.messages import FULL, Ending, WireLeg, WireResponse, meta_of, on_wire
from roundtrip.audit.watching import check_response, parse_question
from roundtrip.audit.wires import AuditWire
from roundtrip.client.answers import AnswerFile, answer_from
from roundtrip.client.failures import CallFailed
from roundtrip.testing.forms import valid_answer
from roundtrip.untrusted import mapping_of

_VERSION: Final = version("mcp-roundtrip")
_NOT_OF_THE_REQUEST: Final = (401, 403, 429)
"""HTTP statuses that the request's state and answers do not cause."""


class LimitReached(Exception):
    """The audit has reached one of its limits and must not send any more requests."""


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """Audit limits."""

    requests: int = 2000
    seconds: float = 600.0
    timeout: float = 10.0
    """Maximum seconds for one request."""
    rounds: int = 10
    """Maximum rounds in one call."""
    body_bytes: int = 8 * 2**20
    """Size of an oversized request."""


@dataclass(frozen=True, slots=True)
class AuditedTool:
    """A tool that the user named, with the arguments for its calls."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class AuditedCall:
    """An honest client's call, which has ended or failed."""

    legs: list[WireLeg]
    responses: list[WireResponse] = field(default_factory=list[WireResponse])
    trouble: str | None = None
    """Why the call did not end."""

    @property
    def last(self) -> WireResponse:
        """Return the last response."""
        return self.responses[-1]

    @property
    def asked(self) -> list[int]:
        """Return the indexes of responses that contain questions or a state."""
        return [number for number, response in enumerate(self.responses) if response.ending is Ending.ASKED]

    def answers(self, start: int = 0) -> dict[str, Any]:
        """Return the answers from all legs whose index is `start` or higher."""
        answers_so_far: dict[str, Any] = {}
        for leg in self.legs[start:]:
            answers_so_far |= mapping_of(leg.answers)
        return answers_so_far

    @property
    def states(self) -> list[str]:
        """Return the states that the server sent."""
        return [one.state for one in self.responses if isinstance(one.state, str) and one.state]


@dataclass(frozen=True, slots=True)
class Reaction:
    """The server's response to a leg that an honest client would not send."""

    response: WireResponse
    continued: bool
    """True if the call continued as it would for an honest client."""
    asked_again: bool
    """True if the server asked the same questions again."""


def reaction_to(response: WireResponse, honest: AuditedCall, index: int) -> Reaction:
    """Compare a response with the response to the honest leg.

    Args:
        response: The response.
        honest: The honest call.
        index: The index of the changed leg.
    """
    if response.ending in (Ending.DONE, Ending.TASK):
        return Reaction(response, continued=True, asked_again=False)
    if response.ending is not Ending.ASKED:
        return Reaction(response, continued=False, asked_again=False)
    before, first = honest.responses[index - 1].questions, honest.responses[0].questions
    after: Mapping[str, Any] = honest.responses[index].questions if index < len(honest.responses) else {}
    keys = response.questions.keys()
    if after and response.questions == after and after != before:
        return Reaction(response, continued=True, asked_again=False)
    if keys <= before.keys() and (keys or not before):
        return Reaction(response, continued=False, asked_again=True)
    began_again = keys <= first.keys() and (keys or not first)
    return Reaction(response, continued=not began_again, asked_again=False)


class AuditSession:
    """Session with the audited server. It sends requests within limits, checks the responses, and takes notes.

    Args:
        wire: The connection.
        limits: The limits.
        answers: The user's answers.
        has_other: True if the connection has another user's headers.
    """

    def __init__(self, wire: AuditWire, limits: AuditLimits, answers: AnswerFile, *, has_other: bool) -> None:
        self.wire = wire
        self.notes = AuditNotes(ToolNotes)
        self.limits = limits
        self.has_other = has_other
        self.sent = 0
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self._answers = answers
        self._known_answers: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._began_at = anyio.current_time()
        self._waited = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the session started."""
        return anyio.current_time() - self._began_at

    async def wait(self, seconds: float) -> None:
        """Wait for a number of seconds, which do not count toward the time limit."""
        self._waited += seconds
        await anyio.sleep(seconds)

    async def send(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        capabilities: Mapping[str, Any] = FULL,
        is_other: bool = False,
    ) -> WireResponse:
        """Send a request, and check the response.

        Raises:
            LimitReached: The audit reached its request or time limit.
        """
        if self.sent >= self.limits.requests:
            raise LimitReached(f"the audit has sent {self.sent} requests; see --max-requests")
        if self.seconds - self._waited >= self.limits.seconds:
            raise LimitReached(f"the audit has taken {self.limits.seconds:g} s; see --max-seconds")
        self.sent += 1
        headers: Mapping[str, str] = {}
        name, arguments = params.get("name"), params.get("arguments")
        if method == "tools/call" and isinstance(name, str) and isinstance(arguments, Mapping):
            headers = mcp_param_headers(
                x_mcp_header_map(self.schemas.get(name, {})), cast("Mapping[str, Any]", arguments)
            )
        params = {**params, "_meta": meta_of(capabilities, version=_VERSION)}
        response = await self.wire.send(method, params, headers=headers, is_other=is_other)
        tool = name if isinstance(name, str) else None
        check_response(self.notes, method, response, capabilities, tool)
        return response

    async def call(
        self, leg: WireLeg, *, capabilities: Mapping[str, Any] = FULL, is_other: bool = False
    ) -> WireResponse:
        """Send one leg of a call."""
        response = await self.send("tools/call", leg.params(), capabilities=capabilities, is_other=is_other)
        if response.ending is Ending.CRASHED and response.error is None and not await self.is_alive():
            raise LimitReached(f"the server stopped answering: {response.summary}")
        if response.status in _NOT_OF_THE_REQUEST and response.error is None and not is_other:
            raise LimitReached(f"the server answers with HTTP status {response.status}")
        if response.ending is Ending.DONE:
            self.ended[leg.name] += 1
        return response

    async def unsent_leg(self, tool: AuditedTool, honest: AuditedCall, index: int) -> WireLeg | None:
        """Play a new call up to a leg, and return that leg without sending it. Return None if the new call gets
        different questions.

        Args:
            tool: The tool.
            honest: The honest call that the new call should match.
            index: The index of the leg, at least 1.
        """
        call = await self.play(tool, until=index - 1)
        if len(call.responses) != index or call.last.ending is not Ending.ASKED:
            return None
        if call.last.questions.keys() != honest.responses[index - 1].questions.keys():
            return None
        try:
            return call.legs[-1].answering(call.last, self.answers(tool.name, call.last.questions))
        except CallFailed:
            return None

    async def play(
        self,
        tool: AuditedTool,
        *,
        until: int | None = None,
        capabilities: Mapping[str, Any] = FULL,
    ) -> AuditedCall:
        """Play an honest call, or only its first rounds.

        Args:
            tool: The tool.
            until: The round at which to stop without answering; the first round is 0. If None, the call is played to
                its end.
            capabilities: The client's capabilities.
        """
        self.begun[tool.name] += 1
        call = AuditedCall([WireLeg(tool.name, tool.arguments)])
        while True:
            response = await self.call(call.legs[-1], capabilities=capabilities)
            call.responses.append(response)
            rounds = len(call.responses) - 1
            if response.ending is not Ending.ASKED or rounds == until:
                return call
            if rounds >= self.limits.rounds:
                call.trouble = f"the call still asks after {rounds} rounds; see --max-rounds"
                return call
            try:
                call.legs.append(call.legs[-1].answering(response, self.answers(tool.name, response.questions)))
            except CallFailed as failure:
                call.trouble = f"{failure}"
                return call

    def answers(self, tool: str, questions: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return honest answers to questions. Use the user's answers, or generate answers from the forms.

        Raises:
            CallFailed: The user gave no answer to a question, and none can be generated.
        """
        answers: dict[str, Mapping[str, Any]] = {}
        for key, request in questions.items():
            question_id = (tool, key, repr(request))
            if question_id not in self._known_answers:
                self._known_answers[question_id] = self._make_answer(key, request)
            answers[key] = self._known_answers[question_id]
        return answers

    def _make_answer(self, key: str, request: Any) -> Mapping[str, Any]:
        question = parse_question(request)
        if question is None:
            raise CallFailed(f"the question {key!r} is invalid")
        if (written := answer_from(self._answers, question, key)) is not None:
            return on_wire(written)
        if not isinstance(question, ElicitRequest):
            if question.method == "roots/list":
                return {"roots": []}
            return {"role": "assistant", "content": {"type": "text", "text": "text"}, "model": "roundtrip-audit"}
        schema = getattr(question.params, "requested_schema", None)
        if schema is None:
            return {"action": "accept"}
        try:
            return {"action": "accept", "content": valid_answer(schema)}
        except ValueError as error:
            raise CallFailed(f"cannot generate an answer to {key!r}; give one with --answers: {error}") from error

    async def is_alive(self) -> bool:
        """Return True if the server still lists its tools."""
        response = await self.send("tools/list", {})
        if response.status in _NOT_OF_THE_REQUEST:
            raise LimitReached(f"the server answers with HTTP status {response.status}")
        alive = response.result is not None
        self.notes[None].require(alive, "S9.alive", "after a bad request, the server did not list its tools")
        return alive
