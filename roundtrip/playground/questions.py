"""Open questions on the page: their page data, and the answers that the page sends."""

from typing import Final, Literal, cast

import anyio
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl, ValidationError

from roundtrip.client.answers import DECLINED, kind_of_question
from roundtrip.client.person import can_be_opened
from roundtrip.machine.journal import ACTIONS, OUTCOMES
from roundtrip.pages.controls import Posted
from roundtrip.playground.forms import ShownForm
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.forms import json_text
from roundtrip.trace.page.requests import FormInvalid

_Action = Literal["accept", "decline", "cancel"]
_MODEL: Final = "a person at the playground"


class OpenQuestion:
    """One question that a call asked.

    Args:
        id: The question's id on the page.
        key: The question's name; None in the live era.
        request: The server's request that asks the question.
        round: The round's number.
    """

    def __init__(self, id: str, key: str | None, request: InputRequest, round: int) -> None:
        self.id = id
        self.key = key
        self.round = round
        self.answered = anyio.Event()
        self.response: InputResponse | ErrorData | None = None
        self._request = request
        self._action = ""
        self._form: ShownForm | None = None
        if isinstance(request, ElicitRequest) and isinstance(request.params, ElicitRequestFormParams):
            self._form = ShownForm(id, request.params.requested_schema)

    @property
    def is_declined(self) -> bool:
        """Return True if the developer declined or cancelled the question."""
        return self._action in ("decline", "cancel")

    def data(self) -> Data:
        """Return the question as page data."""
        data: Data = {
            "id": self.id,
            "key": self.key,
            "round": self.round,
            "kind": kind_of_question(self._request),
            "message": "",
            "fields": self._form.data() if self._form is not None else [],
            "answer": None,
        }
        if isinstance(self._request, ElicitRequest):
            data["message"] = self._request.params.message
            if isinstance(self._request.params, ElicitRequestURLParams):
                url = self._request.params.url
                data |= {"url": url, "opens": can_be_opened(url)}
        elif isinstance(self._request, CreateMessageRequest):
            data |= _sampling_data(self._request.params)
        if self._action:
            data["answer"] = {"action": OUTCOMES[self._action], "text": self._answer_text()}
        return data

    def answer(self, action: object, posted: Posted, text: object) -> None:
        """Answer the question, unless it has already been answered.

        Args:
            action: `accept`, `decline` or `cancel`.
            posted: The texts in the form fields.
            text: The answer to a sampling request, or to a roots request. For a roots request, each line has one folder
                address.

        Raises:
            ValueError: The action is unknown, or `text` is not a string.
            FormInvalid: A text does not fit its form field.
        """
        if not isinstance(action, str) or action not in ACTIONS:
            raise ValueError("action must be accept, decline or cancel")
        if not isinstance(text, str):
            raise ValueError("text must be a string")
        if not self.answered.is_set():
            self.response = self._response(cast("_Action", action), posted, text)
            self._action = action
            self.answered.set()

    def _response(self, action: _Action, posted: Posted, text: str) -> InputResponse | ErrorData:
        if isinstance(self._request, ElicitRequest):
            content = self._form.read(posted) if action == "accept" and self._form is not None else None
            return ElicitResult(action=action, content=content)
        if action != "accept":
            return DECLINED
        if isinstance(self._request, CreateMessageRequest):
            said = TextContent(text=text)
            return CreateMessageResult(role="assistant", content=said, model=_MODEL, stop_reason="endTurn")
        try:
            roots = [Root(uri=FileUrl(line.strip())) for line in text.splitlines() if line.strip()]
        except ValidationError:
            raise FormInvalid({f"{self.id}-text": "Each line must be an address such as file:///home/ada."}) from None
        return ListRootsResult(roots=roots)

    def _answer_text(self) -> str:
        match self.response:
            case ElicitResult(content=content) if content:
                return json_text(content)
            case CreateMessageResult(content=TextContent(text=text)):
                return text
            case ListRootsResult(roots=roots):
                return "\n".join(str(root.uri) for root in roots)
            case _:
                return ""


def _sampling_data(params: CreateMessageRequestParams) -> Data:
    said = [
        [message.role, "\n".join(b.text if isinstance(b, TextContent) else f"[{b.type}]" for b in blocks)]
        for message in params.messages
        for blocks in [message.content_as_list]
    ]
    system = [["system", params.system_prompt]] if params.system_prompt else []
    message = f"The server asks the client's model for an answer of at most {params.max_tokens} tokens."
    return {"message": message, "said": [*system, *said]}
