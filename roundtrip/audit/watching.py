"""Checks of every response against the clauses that a single response can break."""

import re
from collections.abc import Mapping
from typing import Any, Final

from mcp_types import ElicitRequest, InputRequest
from pydantic import TypeAdapter, ValidationError

from roundtrip.audit.findings import AuditNotes, ToolNotes
from roundtrip.audit.forms import check_form
from roundtrip.audit.messages import Ending, WireResponse
from roundtrip.untrusted import mapping_of

_REQUEST: Final[TypeAdapter[InputRequest]] = TypeAdapter(InputRequest)
_KINDS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
_MAX_SEARCHED_CHARS: Final = 100_000
_LEAKS: Final = (
    re.compile(r"Traceback \(most recent call last\)"),
    re.compile(r'File "[^"]+", line \d+'),
    re.compile(r"\bat \S+ \(?\S+:\d+:\d+\)?"),
    re.compile(r"(?<![\w.:/])/(?:[\w.-]+/){2,}[\w.-]+\.(?:py|js|ts|go|rs|java|rb)\b"),
    re.compile(r"\b(?:Key|Type|Value|Attribute|Index|Name|Runtime|Assertion|Unicode\w*|JSONDecode|OS)Error\b"),
    re.compile(r"\d+ validation errors? for \w+|errors\.pydantic\.dev"),
)


def parse_question(request: Any) -> InputRequest | None:
    """Parse a request as a question; return None if it is not a question."""
    try:
        return _REQUEST.validate_python(request)
    except ValidationError:
        return None


def check_response(
    all_notes: AuditNotes, method: str, response: WireResponse, capabilities: Mapping[str, Any], tool: str | None
) -> None:
    """For each clause, record whether a response complies.

    Args:
        all_notes: The audit's notes.
        method: The request's method.
        response: The response.
        capabilities: The capabilities that the request declared.
        tool: The called tool.
    """
    notes, server_notes = all_notes[tool], all_notes[None]
    for request in response.requests:
        notes.failed("S1.returned", f"the server sent {request!r} over the connection")
    if response.message is None:
        return
    server_notes.passed("S1.returned")
    is_response = response.message.get("jsonrpc") == "2.0" and response.has_id
    text = f"a response to {method} is not JSON-RPC 2.0, or has another request's id"
    server_notes.require(is_response, "R2", text)
    if response.error is not None:
        _note_leaks(notes, response)
    if response.result is None:
        return
    has_type = isinstance(response.result_type, str)
    notes.require(has_type, "R1", f"a {method} result has no resultType")
    if response.ending is Ending.FAILED:
        _note_leaks(notes, response)
    if response.ending is Ending.TASK:
        declared = "extensions" in capabilities
        notes.require(declared, "T2", "a call became a task for a client without tasks")
    if response.ending is Ending.ASKED:
        if method != "tools/call":
            server_notes.failed("S1", f"{method} was answered with questions")
        _note_questions(notes, response)
    elif method != "tools/call":
        server_notes.passed("S1")
    _note_kinds(notes, response, capabilities)


def _note_leaks(notes: ToolNotes, response: WireResponse) -> None:
    leaks = [found[0] for pattern in _LEAKS if (found := pattern.search(response.text[:_MAX_SEARCHED_CHARS]))]
    # One example is enough.
    if not leaks or notes.has_failed("A2"):
        notes.passed("A2")
    else:
        notes.failed("A2", f"an error shows {leaks[0]!r}: {response.summary}")


def _note_questions(notes: ToolNotes, response: WireResponse) -> None:
    result = response.result or {}
    notes.require(
        response.result_type == "input_required",
        "S2.type",
        f"a result with questions or a state has resultType {response.result_type!r}",
    )
    asked, state = result.get("inputRequests"), result.get("requestState")
    notes.require(
        ("inputRequests" in result or "requestState" in result)
        and ("inputRequests" not in result or isinstance(asked, Mapping))
        and ("requestState" not in result or isinstance(state, str)),
        "S2.content",
        "an input-required result has neither questions nor a state, or they have a wrong type",
    )
    if response.repeated is not None:
        text = f"the response has the key {', '.join(response.repeated)} twice in one object"
        notes.require(not response.repeated, "S3.keys", text)
    else:
        notes.untried("S3.keys", "duplicate keys cannot be detected over stdio")


def _note_kinds(notes: ToolNotes, response: WireResponse, capabilities: Mapping[str, Any]) -> None:
    for key, request in response.questions.items():
        kind = mapping_of(request).get("method")
        question = parse_question(request)
        text = f"the question {key!r} is not a request that a client can answer: method {kind!r}"
        notes.require(kind in _KINDS and question is not None, "S3.kinds", text)
        missing = _undeclared(request, capabilities)
        text = f"the server asked {key!r}, but the client did not declare {missing}"
        notes.require(missing is None, "S6.declared", text)
        if isinstance(question, ElicitRequest):
            if question.params.mode == "url":
                notes.untried("S12", "the test needs two users in a browser")
            else:
                check_form(notes, key, mapping_of(request))


def _undeclared(request: Any, capabilities: Mapping[str, Any]) -> str | None:
    """Return a capability that a question needs but the request did not declare, or None."""
    asked = mapping_of(request)
    details = mapping_of(asked.get("params"))
    match asked.get("method"):
        case "elicitation/create":
            modes: Any = capabilities.get("elicitation")
            if modes is None:
                return "elicitation"
            mode = "url" if details.get("mode") == "url" else "form"
            return None if mode in modes or (mode == "form" and not modes) else f"elicitation.{mode}"
        case "sampling/createMessage":
            if "sampling" not in capabilities:
                return "sampling"
            return "sampling.tools" if "tools" in details and "tools" not in capabilities["sampling"] else None
        case "roots/list":
            return None if "roots" in capabilities else "roots"
        case _:
            return None
