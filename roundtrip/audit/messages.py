"""The audit's requests and responses. They are plain JSON, because SDK models could hide a server's mistakes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final, cast

from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel

from roundtrip.client.tasks import EXTENSION
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.untrusted import list_of, mapping_of

_MAX_SUMMARY_CHARS: Final = 160
_FIRST_SERVER_STATUS: Final = 500
_FIRST_BAD_STATUS: Final = 400

Json = Mapping[str, Any]


ABSENT: Final = object()
"""Placeholder for a parameter that the request leaves out."""

NONE: Final[Json] = {}
"""Capabilities of a client that can answer no questions."""
FULL: Final[Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
"""Capabilities of a client that can answer every kind of question, but does not support tasks."""
WITH_TASKS: Final[Json] = {**FULL, "extensions": {EXTENSION: {}}}
"""Capabilities of a client that can answer every kind of question, and supports tasks."""


@dataclass(frozen=True, slots=True)
class WireLeg:
    """One request in a call. Its answers and its state may have any type."""

    name: str
    arguments: Json
    answers: Any = ABSENT
    state: Any = ABSENT

    def params(self) -> dict[str, Any]:
        """Return the `tools/call` parameters."""
        optional = {"inputResponses": self.answers, "requestState": self.state}
        return {
            "name": self.name,
            "arguments": dict(self.arguments),
            **{key: value for key, value in optional.items() if value is not ABSENT},
        }

    def answering(self, asked: "WireResponse", answers: Json) -> "WireLeg":
        """Return the call's next leg, with answers to a response's questions."""
        state = ABSENT if asked.state is None else asked.state
        return replace(self, answers=dict(answers) if asked.questions else ABSENT, state=state)


class Ending(Enum):
    """Outcome of one request."""

    REJECTED = "rejected"
    """A deliberate JSON-RPC error, or an HTTP 4xx status."""
    CRASHED = "crashed"
    """An internal error, or no response."""
    FAILED = "failed"
    """A result with a tool error."""
    ASKED = "asked"
    DONE = "done"
    TASK = "task"


@dataclass(frozen=True)
class WireResponse:
    """Response to one request."""

    message: Json | None = None
    """The JSON-RPC response."""
    status: int | None = None
    """The HTTP status."""
    text: str = ""
    """The response text."""
    trouble: str | None = None
    """Why there is no JSON-RPC response."""
    repeated: tuple[str, ...] | None = None
    """Keys that occur twice in the same object; None if this is unknown."""
    requests: tuple[str, ...] = ()
    """Methods of the requests that the server sent before the response."""
    has_id: bool = True
    """True if the response has the same ID as its request, or is an error without an ID."""
    is_cut: bool = False
    """True if the connection ended before a response arrived. The server may have rejected a body without reading it.
    """

    @cached_property
    def result(self) -> Json | None:
        """Return the result."""
        value: Any = (self.message or {}).get("result")
        return cast("Json", value) if isinstance(value, Mapping) else None

    @cached_property
    def error(self) -> Json | None:
        """Return the JSON-RPC error."""
        value: Any = (self.message or {}).get("error")
        return cast("Json", value) if isinstance(value, Mapping) else None

    @property
    def result_type(self) -> object:
        """Return the `resultType` in the result; None if the result has none."""
        return (self.result or {}).get("resultType")

    @cached_property
    def questions(self) -> Json:
        """Return the questions, by key."""
        return mapping_of((self.result or {}).get("inputRequests"))

    @property
    def state(self) -> Any:
        """Return the request state, or None."""
        return (self.result or {}).get("requestState")

    @property
    def task_id(self) -> str | None:
        """Return the task ID, if the call became a task."""
        value = (self.result or {}).get("taskId")
        return value if self.result_type == "task" and isinstance(value, str) else None

    @property
    def texts(self) -> str:
        """Return the result's text blocks as one text."""
        blocks = map(mapping_of, list_of((self.result or {}).get("content")))
        return " ".join(str(block.get("text", "")) for block in blocks if block)

    @cached_property
    def ending(self) -> Ending:
        """Return how this request ended."""
        if self.error is not None:
            return Ending.CRASHED if self.error.get("code") == INTERNAL_ERROR else Ending.REJECTED
        if self.result is None:
            is_client_error = self.status is not None and _FIRST_BAD_STATUS <= self.status < _FIRST_SERVER_STATUS
            return Ending.REJECTED if is_client_error else Ending.CRASHED
        if self.task_id is not None:
            return Ending.TASK
        asks = self.result_type == "input_required" or "inputRequests" in self.result or "requestState" in self.result
        # A `tasks/get` result lists the task's questions, but is not an input-required result.
        if asks and "taskId" not in self.result:
            return Ending.ASKED
        return Ending.FAILED if self.result.get("isError") is True else Ending.DONE

    @property
    def summary(self) -> str:
        """Describe the response in one line."""
        if self.error is not None:
            return _short(f"the error {self.error.get('code')} {self.error.get('message')!r}")
        if self.result is None:
            status = f"HTTP status {self.status}" if self.status is not None else ""
            return _short(", ".join(filter(None, (status, self.trouble))) or "nothing")
        if self.ending is Ending.ASKED:
            return _short(f"a question ({', '.join(map(repr, self.questions)) or 'none: a request to try again'})")
        if self.ending is Ending.TASK:
            return "a task"
        kind = "failure" if self.ending is Ending.FAILED else "result"
        return _short(f"the {kind} {self.texts or json.dumps(self.result)!r}")

    @property
    def rejection(self) -> str:
        """Return the whole rejection, so that it can be compared with other rejections."""
        if self.error is not None:
            return json.dumps([self.error.get(name) for name in ("code", "message", "data")], sort_keys=True)
        return self.summary


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SUMMARY_CHARS else f"{text[: _MAX_SUMMARY_CHARS - 1]}…"


def meta_of(capabilities: Json, *, version: str) -> dict[str, Any]:
    """Return a request's `_meta`."""
    return {
        "io.modelcontextprotocol/protocolVersion": FIRST_OF_RETRY_ERA,
        "io.modelcontextprotocol/clientInfo": {"name": "roundtrip-audit", "version": version},
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities),
    }


def on_wire(answer: BaseModel) -> dict[str, Any]:
    """Return an answer as JSON."""
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def read_response(text: str, *, id: int, status: int | None = None, requests: tuple[str, ...] = ()) -> WireResponse:
    """Parse one response's text."""
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    try:
        message: Any = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return WireResponse(status=status, text=text, trouble="a body that is not JSON", requests=requests)
    if not isinstance(message, Mapping):
        return WireResponse(status=status, text=text, trouble="JSON that is not a message", requests=requests)
    value = cast("Json", message)
    has_id = value.get("id") == id or ("error" in value and value.get("id") is None)
    return WireResponse(value, status, text, None, tuple(repeated), requests, has_id)
