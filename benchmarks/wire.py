"""Requests for `tools/call` and `tools/list` on protocol revision 2026-07-28, and their responses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, cast

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from benchmarks.asgi import Response
from benchmarks.workloads import ARGUMENTS, TOOL

REVISION: Final = "2026-07-28"

_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": REVISION,
}
_CALL_HEADERS: Final = {**_HEADERS, "mcp-method": "tools/call", "mcp-name": TOOL}
_LIST_HEADERS: Final = {**_HEADERS, "mcp-method": "tools/list"}
_META: Final[dict[str, Any]] = {
    PROTOCOL_VERSION_META_KEY: REVISION,
    CLIENT_INFO_META_KEY: {"name": "benchmarks", "version": "0"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}, "sampling": {}},
}

_ids = count(1)


class WrongReply(RuntimeError):
    """A peer's answer was not what the workload demands, so its times would mean nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question that the client sees."""

    message: str
    field: str | None
    """The form's field, or none if the client's model is asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A leg that ended with questions."""

    questions: Mapping[str, Question]
    state: str | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A leg that ended the call."""

    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """The headers and the body of one leg."""

    headers: Mapping[str, str]
    body: bytes
    id: int
    """The id in the body."""


def call(
    *,
    answers: Mapping[str, Mapping[str, str | bool] | str] | None = None,
    state: str | None = None,
) -> Request:
    """Write one leg: without `answers` the first, with them a retry that returns `state`.

    An answer is a form's content, or a model's text.
    """
    params: dict[str, Any] = {"_meta": _META, "name": TOOL, "arguments": ARGUMENTS}
    if answers is not None:
        params["inputResponses"] = {key: _answer(given) for key, given in answers.items()}
    if state is not None:
        params["requestState"] = state
    return _request(_CALL_HEADERS, "tools/call", params)


def list_tools() -> Request:
    """Write a request for the tool list."""
    return _request(_LIST_HEADERS, "tools/list", {"_meta": _META})


def read_list(response: Response) -> list[str]:
    """Read the names in a tool list.

    Raises:
        WrongReply: The response is not a tool list.
    """
    try:
        return [tool["name"] for tool in json.loads(response.body)["result"]["tools"]]
    except (KeyError, TypeError, ValueError) as error:
        raise WrongReply(f"HTTP {response.status}: {_excerpt(response)}") from error


def read(response: Response) -> Asked | Finished:
    """Read one leg's answer.

    Raises:
        WrongReply: The response is an error, or not a `tools/call` result.
    """
    try:
        result: dict[str, Any] = json.loads(response.body)["result"]
        if result["resultType"] == "input_required":
            requests = cast("dict[str, dict[str, Any]]", result["inputRequests"])
            return Asked(
                questions={key: _question(request["params"]) for key, request in requests.items()},
                state=result.get("requestState"),
            )
        if not result.get("isError", False):
            (content,) = result["content"]
            return Finished(text=content["text"])
    except (KeyError, TypeError, ValueError) as error:
        raise WrongReply(f"HTTP {response.status}: {_excerpt(response)}") from error
    raise WrongReply(f"HTTP {response.status}: {_excerpt(response)}")


def _request(headers: Mapping[str, str], method: str, params: dict[str, Any]) -> Request:
    # A retry is a new request with a new id.
    id_ = next(_ids)
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    return Request(headers, json.dumps(message, separators=(",", ":")).encode(), id_)


def _answer(given: Mapping[str, str | bool] | str) -> dict[str, Any]:
    if isinstance(given, str):
        return {"role": "assistant", "model": "benchmarks", "content": {"type": "text", "text": given}}
    return {"action": "accept", "content": given}


def _question(params: dict[str, Any]) -> Question:
    if "messages" in params:
        message: Any = params["messages"][0]
        return Question(message=message["content"]["text"], field=None)
    (field,) = params["requestedSchema"]["properties"]
    return Question(message=params["message"], field=field)


def _excerpt(response: Response) -> str:
    return response.body[:500].decode(errors="replace")
