"""Apps for scripted users: the view that a host with MCP Apps shows inside the conversation.

Like the real view, this one sends its controls' texts through the host, and needs only the payload. Question names and
field names come from the stored call if the server is in this process. Otherwise, questions have no names, and each
field is named by its label.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, ElicitRequest, InputResponse

from roundtrip.channels.apps.app_messages import APP_META
from roundtrip.channels.server_channels import APP_MIME_TYPE
from roundtrip.client.legs import LegRequest, LegResult
from roundtrip.pages.forms import OpenQuestions, form_of_questions
from roundtrip.stored.content import split_id
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.question_pages import AnswerQuestions, control_texts, stored_view
from roundtrip.untrusted import mapping_of

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_LOOK_SECONDS: Final = 0.02
_FORMATS: Final = {"date": "date", "moment": "date-time"}

State = Mapping[str, Any]
"""The call state that a view gets."""


@dataclass(frozen=True, slots=True)
class AppView:
    """A call's app.

    Args:
        payload: What the server sent for the app.
        server: Returns the server that currently serves the call.
        send: Sends a request through the host.
    """

    payload: Mapping[str, Any]
    server: Callable[[], object]
    send: Callable[[LegRequest], Awaitable[LegResult]]

    @property
    def call_id(self) -> str:
        """Return the call's id."""
        return split_id(self.payload["ticket"])[0]

    async def play(self, answer: AnswerQuestions, *, seconds: float) -> bool:
        """Answer all rounds until the call ends or needs its client. Return False if the user leaves the app first.

        Args:
            answer: Answers a round. If the app reports a mistake, this function gives the next answer.
            seconds: How long the app looks at a call that does not ask anything.

        Raises:
            AssertionError: The app does not open, or rejects an answer, or the call does not continue.
        """
        # Hosts also restore old views, so a view looks before it shows anything.
        state = await self._call("look")
        before: Sequence[InputResponse | None] | None = None
        until = anyio.current_time() + seconds
        while state["kind"] != "ended" and not state.get("continue_in_chat"):
            if state["kind"] != "asking":
                if anyio.current_time() > until:
                    raise AssertionError(
                        f"the app is still {state['kind']} after {seconds:g} s; if an approval is missing, pass "
                        "User(approver=...), otherwise raise patience="
                    )
                await anyio.sleep(_LOOK_SECONDS)
                state = await self._call("look")
                continue
            requests, names = await self._questions(state)
            questions = [
                AskedQuestion(names.get(key), ElicitRequest.model_validate(request).params, in_app=True)
                for key, request in requests.items()
            ]
            answers = await answer(questions)
            if answers is None:
                return False
            if state["mistakes"] and answers == before:
                mistakes = "; ".join(f"{one['label']}: {one['text']}" for one in state["mistakes"])
                raise AssertionError(f"the app rejected the answer: {mistakes}")
            before, until = answers, anyio.current_time() + seconds
            texts: dict[str, list[str]] = {}
            for name, text in control_texts(form_of_questions(requests), questions, answers):
                texts.setdefault(name, []).append(text)
            state = await self._call("answer", round=state["round"], answers=texts)
        return True

    async def _call(self, tool: str, **arguments: Any) -> State:
        """Call an app tool, and return the call's state."""
        leg = LegRequest(self.payload["tools"][tool], {"ticket": self.payload["ticket"], **arguments})
        result = await self.send(leg)
        state = state_in(result)
        if state is None or (isinstance(result, CallToolResult) and result.is_error):
            raise AssertionError(f"the app called {leg.name}, and the server answered with {result!r}")
        return state

    async def _questions(self, state: State) -> tuple[OpenQuestions, Mapping[str, str]]:
        """Return the open questions, and their names if they are known."""
        view = await stored_view(self.server(), self.call_id)
        if view is not None and view.content.user_questions:
            return view.content.user_questions, view.content.asked.names
        return {question["id"]: _request_of(question) for question in state["questions"]}, {}


def app_in(
    result: object, *, server: Callable[[], object], send: Callable[[LegRequest], Awaitable[LegResult]]
) -> AppView | None:
    """Return the app that a result opens; None for any other result."""
    payload = payload_in(result)
    return AppView(payload, server, send) if payload is not None else None


def payload_in(result: object) -> Mapping[str, Any] | None:
    """Return what a result has for an app; None for any other result."""
    meta = result.meta if isinstance(result, CallToolResult) else None
    return mapping_of((meta or {}).get(APP_META)) or None


def state_in(result: object) -> State | None:
    """Return the state in a reply to an app; None for any other reply."""
    content = result.structured_content if isinstance(result, CallToolResult) else None
    state = mapping_of(mapping_of(content).get("state"))
    return state if isinstance(state.get("kind"), str) else None


async def require_app(question: AskedQuestion, session: ClientSession) -> None:
    """Require that a form names an app, and that the host can read the app's document.

    Raises:
        AssertionError: The form names no app, or the address has no app.
    """
    meta = mapping_of(getattr(question.params, "meta", None))
    uri = mapping_of(meta.get("ui")).get("resourceUri")
    if not isinstance(uri, str):
        raise AssertionError(f"the form of {question} must name an app; add Pages(app=True) to the server")
    contents = (await session.read_resource(uri)).contents
    types = [one.mime_type for one in contents]
    if types != [APP_MIME_TYPE]:
        raise AssertionError(f"the app of {question} must be one document of the type {APP_MIME_TYPE!r}, got {types}")


def _request_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question that the payload describes, in wire form. Its controls have the payload's names."""
    params: dict[str, Any] = {"message": "\n".join(filter(None, [question["heading"], question["text"]]))}
    if question["kind"] == "link":
        params |= {"mode": "url", "url": question["url"] or question["shown_url"], "elicitationId": question["id"]}
    else:
        fields = {_name_of(field["label"]): field for field in question["fields"]}
        params["requestedSchema"] = {
            "type": "object",
            "properties": {name: _schema_of(field) for name, field in fields.items()},
            "required": [name for name, field in fields.items() if field["required"]],
        }
    return {"method": "elicitation/create", "params": params}


def _name_of(label: str) -> str:
    return "value" if label == "Your answer" else re.sub(r"\W+", "_", label.casefold()).strip("_")


def _schema_of(field: Mapping[str, Any]) -> dict[str, Any]:
    labels = [option["label"] for option in field["options"] if option["wire"]]
    chosen = [option["label"] for option in field["options"] if option["wire"] and option["chosen"]]
    schema: dict[str, Any] = {"type": "string", "title": field["label"]}
    default: Any = "".join(field["typed"])
    if field["is_yes_no"]:
        schema["type"], default = "boolean", chosen == labels[:1] if chosen else ""
    elif field["control"] == "checkboxes":
        schema |= {"type": "array", "items": {"type": "string", "enum": labels}}
        default = chosen
    elif labels:
        schema["enum"], default = labels, "".join(chosen)
    elif field["control"] in _FORMATS:
        schema["format"] = _FORMATS[field["control"]]
    return schema if default in ("", []) else {**schema, "default": default}
