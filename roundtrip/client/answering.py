"""Everything a server asks, answered: from the file where it has an answer, else by the person, else not at all."""

from collections.abc import Sequence

import anyio
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsResult,
    Root,
    TextContent,
)

from roundtrip.client.answers import AnswerFile, answered_form, answered_page, answered_request
from roundtrip.client.endings import CallFailed
from roundtrip.client.person import PersonAtTerminal
from roundtrip.client.showing import show_page
from roundtrip.client.terminal import Terminal
from roundtrip.safe_text import printable

__all__ = ["DECLINED", "Answering", "kind_of_question"]

DECLINED = ErrorData(code=INVALID_REQUEST, message="The user declined to answer")
_MESSAGE_SHOWN = 80


class Answering:
    """Answers one question at a time, however many the server asks at once."""

    def __init__(self, terminal: Terminal, answers: AnswerFile, roots: Sequence[Root]) -> None:
        self._terminal = terminal
        self._person = PersonAtTerminal(terminal)
        self._answers = answers
        self._roots = list(roots)
        self._turn = anyio.Lock()
        self.refused = False
        """Whether anything was declined or cancelled."""

    async def answer(self, request: InputRequest, *, key: str | None = None) -> InputResponse | ErrorData:
        """The answer to one question. Declining what has no way to say so on the wire is an error.

        Raises:
            CallFailed: Nobody answers it, or the file's answer does not fit.
        """
        async with self._turn:
            if isinstance(request, ElicitRequest):
                response = await self._elicited(request, key)
                self.refused |= response.action != "accept"
                return response
            if isinstance(request, CreateMessageRequest):
                message = await self._sampled(request.params, key)
                self.refused |= message is None
                return DECLINED if message is None else message
            return ListRootsResult(roots=self._roots)

    async def _elicited(self, request: ElicitRequest, key: str | None) -> ElicitResult:
        params = request.params
        name = _name_of(key, params.message)
        found, answer = self._answers.find(key, params.message)
        if isinstance(params, ElicitRequestURLParams):
            if found:
                show_page(self._terminal, params)
                return answered_page(params, answer, name)
            self._require_person(name)
            self._announce(key)
            return await self._person.visit(params)
        if found:
            return answered_form(params, answer, name)
        self._require_person(name)
        self._announce(key)
        return await self._person.fill_in(params)

    async def _sampled(self, params: CreateMessageRequestParams, key: str | None) -> CreateMessageResult | None:
        message = next(
            (
                block.text
                for said in reversed(params.messages)
                for block in said.content_as_list
                if isinstance(block, TextContent)
            ),
            "",
        )
        name = _name_of(key, message)
        found, answer = self._answers.find(key, message)
        if found:
            return answered_request(answer, name)
        self._require_person(name)
        self._announce(key)
        return await self._person.stand_in(params)

    def _announce(self, key: str | None) -> None:
        self._terminal.say()
        self._terminal.say(f"The server asks{f' ({printable(key)})' if key is not None else ''}:", style="cyan")

    def _require_person(self, name: str) -> None:
        if not self._terminal.has_person:
            raise CallFailed(
                f"nobody answers {name}; run it at a terminal, or write an answer to it into the file of --answers"
            )


def kind_of_question(request: InputRequest) -> str:
    """What a question is, in a word."""
    if isinstance(request, ElicitRequest):
        return "page" if isinstance(request.params, ElicitRequestURLParams) else "form"
    return "model" if isinstance(request, CreateMessageRequest) else "roots"


def _name_of(key: str | None, message: str) -> str:
    if key is not None:
        return f"the question {key!r}"
    short = message if len(message) <= _MESSAGE_SHOWN else message[:_MESSAGE_SHOWN] + "..."
    return f"the question {short!r}"
