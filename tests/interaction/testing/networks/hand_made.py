"""A server written by hand, with the low-level SDK only, and calls of it; tests switch each typical flaw on.

Without flaws it keeps nothing to itself: what it must remember of a call is in a signed token, and what it has done
is in a ledger that all its instances share.
"""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import anyio.lowlevel
from cryptography.fernet import Fernet, MultiFernet
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from roundtrip.testing import Conversation, Eavesdrop, Network, User
from roundtrip.testing.user_defaults import NETWORKS

__all__ = ["ANSWERS", "HONEST", "SECRET", "Flaw", "Ledger", "call", "honest", "make", "make_forgetful", "maker"]

SECRET: Final = "voucher-4711"
_TTL: Final = 600


class Flaw(Enum):
    """Mistakes that authors make."""

    KEEPS_CALLS_TO_ITSELF = auto()
    BOOKS_TWICE = auto()
    BOOKS_TWICE_AT_ONCE = auto()
    CRASHES_ON_WHAT_IS_DONE = auto()
    REMEMBERS_ANSWERS_BY_ARGUMENT = auto()
    KNOWS_ITS_NEWEST_KEY_ONLY = auto()
    TAKES_EXPIRED_TOKENS = auto()
    TAKES_UNSIGNED_TOKENS = auto()
    DECODES_LAXLY = auto()
    TELLS_FAULTS_APART = auto()
    CRASHES_ON_BAD_TOKENS = auto()
    BINDS_NO_ARGUMENTS = auto()
    BINDS_NO_TOOL = auto()
    BINDS_NO_USER = auto()
    FAILS_ON_MISSING_ANSWERS = auto()
    FORGETS_SIBLINGS = auto()
    TRUSTS_ANSWERS_WITHOUT_TOKEN = auto()
    TRUSTS_EARLY_ANSWERS = auto()
    CRASHES_ON_UNKNOWN_ANSWERS = auto()
    CRASHES_ON_GARBAGE = auto()
    TAKES_GARBAGE = auto()
    LEAKS_IN_BASE64 = auto()


@dataclass(slots=True)
class Ledger:
    """Effects by call, which all instances share."""

    done: dict[str, str] = field(default_factory=dict[str, str])
    booked: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Question:
    message: str
    field: str
    shape: Mapping[str, Any]

    def is_answered_by(self, content: Mapping[str, Any] | None) -> bool:
        value = (content or {}).get(self.field)
        if "enum" in self.shape:
            return value in self.shape["enum"]
        if self.shape["type"] == "integer":
            return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 5
        return isinstance(value, str)


_QUESTIONS: Final = {
    "seat": _Question("Which row?", "row", {"type": "string", "enum": ["front", "middle", "back"]}),
    "snack": _Question("Something to eat?", "name", {"type": "string"}),
    "stars": _Question("How many stars?", "value", {"type": "integer", "minimum": 1, "maximum": 5}),
    "words": _Question("In a few words?", "value", {"type": "string"}),
    "sender": _Question("From whose account?", "value", {"type": "string"}),
    "receiver": _Question("To whose account?", "value", {"type": "string"}),
}
_TOOLS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "book": (("seat",), ("snack",)),
    "book_for_club": (("seat",), ("snack",)),
    "review": (("stars", "words"),),
    "transfer": (("sender",), ("receiver",)),
    "greet": (),
}
"""The questions of each tool, round by round."""


def maker(*flaws: Flaw, ledger: Ledger | None = None, reversed_questions: bool = False) -> Callable[..., Server[Any]]:
    """Return a function that makes instances with these flaws, and all with one ledger."""
    shared = ledger or Ledger()

    def make(keys: Sequence[bytes]) -> Server[Any]:
        shop = _Shop(keys, frozenset(flaws), shared, reversed_questions=reversed_questions)
        return Server("hand-made", on_list_tools=shop.list_tools, on_call_tool=shop.call_tool)

    return make


def make() -> Server[Any]:
    """Make an instance without flaws, for a separate process."""
    return maker()([b"k" * 32])


def make_forgetful() -> Server[Any]:
    """Make an instance that keeps its calls in memory."""
    return maker(Flaw.KEEPS_CALLS_TO_ITSELF)([b"k" * 32])


class _Shop:
    """One instance."""

    def __init__(
        self, keys: Sequence[bytes], flaws: frozenset[Flaw], ledger: Ledger, *, reversed_questions: bool
    ) -> None:
        self._keys = keys
        self._fernet = MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(key).digest())) for key in keys])
        self._flaws = flaws
        self._ledger = ledger
        self._reversed = reversed_questions
        self._calls: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}

    async def list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        schema = {"type": "object", "properties": {"film": {"type": "string"}}}
        return ListToolsResult(tools=[Tool(name=name, input_schema=schema) for name in _TOOLS])

    async def call_tool(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in _TOOLS:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}")
        call = self._restored(params)
        refusal = self._take(call, params)
        if refusal is not None:
            return refusal
        rounds = [[key for key in round_ if key not in call["answers"]] for round_ in self._rounds(params.name)]
        asked = next(filter(None, rounds), None)
        if asked is None:
            return await self._book(call, params)
        call["asked"] = asked
        return InputRequiredResult(
            input_requests={key: _asking(_QUESTIONS[key]) for key in asked},
            request_state=self._token(call),
        )

    def _rounds(self, tool: str) -> list[list[str]]:
        rounds: list[list[str]] = [list(round_) for round_ in _TOOLS[tool]]
        if self._reversed:
            rounds.reverse()
        return rounds

    # What it knows of a call.

    def _restored(self, params: CallToolRequestParams) -> dict[str, Any]:
        now, request = time.time(), self._request(params)
        if params.request_state is not None:
            known = self._opened(params.request_state)
            if known["for"] != request:
                raise self._refusal("the token is for another request")
            if known["until"] < now and Flaw.TAKES_EXPIRED_TOKENS not in self._flaws:
                raise self._refusal("the token has expired")
            return known
        number = uuid.uuid4().hex
        call: dict[str, Any] = {"id": number, "for": request, "until": now + _TTL, "answers": {}, "asked": []}
        call["voucher"] = self._fernet.encrypt(SECRET.encode()).decode()
        self._calls[number] = call
        return call

    def _request(self, params: CallToolRequestParams) -> list[Any]:
        user = get_access_token()
        return [
            None if Flaw.BINDS_NO_TOOL in self._flaws else params.name,
            None if Flaw.BINDS_NO_ARGUMENTS in self._flaws else params.arguments,
            None if Flaw.BINDS_NO_USER in self._flaws or user is None else user.subject,
        ]

    def _refusal(self, fault: str) -> MCPError:
        told = fault if Flaw.TELLS_FAULTS_APART in self._flaws else "Invalid or expired requestState"
        return MCPError(INVALID_PARAMS, told)

    # The token.

    def _token(self, call: Mapping[str, Any]) -> str:
        if Flaw.KEEPS_CALLS_TO_ITSELF in self._flaws:
            self._calls[call["id"]] = {**call, "answers": dict(call["answers"])}
            return call["id"]
        body = _base64(self._packed(call))
        return f"{body}.{self._signature(body, self._keys[0])}"

    def _packed(self, call: Mapping[str, Any]) -> bytes:
        leak = {"voucher": SECRET} if Flaw.LEAKS_IN_BASE64 in self._flaws else {}
        return json.dumps({**call, **leak}).encode()

    def _signature(self, body: str, key: bytes) -> str:
        return _base64(hmac.digest(key, body.encode(), "sha256"))

    def _opened(self, token: str) -> dict[str, Any]:
        if Flaw.KEEPS_CALLS_TO_ITSELF in self._flaws:
            if token not in self._calls:
                raise self._refusal("there is no such call")
            return self._calls[token]
        if Flaw.DECODES_LAXLY in self._flaws:
            token = "".join(letter for letter in token if letter.isascii() and (letter.isalnum() or letter in "-_."))
        body, _, signature = token.partition(".")
        if not token.isascii() and Flaw.CRASHES_ON_BAD_TOKENS not in self._flaws:
            raise self._refusal("the token has foreign characters")
        keys = self._keys[:1] if Flaw.KNOWS_ITS_NEWEST_KEY_ONLY in self._flaws else self._keys
        signed = any(hmac.compare_digest(self._signature(body, key), signature) for key in keys)
        if not signed and Flaw.TAKES_UNSIGNED_TOKENS not in self._flaws:
            raise self._refusal("the token's signature is wrong")
        try:
            return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except ValueError:
            raise self._refusal("the token cannot be read") from None

    # Answers.

    def _take(self, call: dict[str, Any], params: CallToolRequestParams) -> CallToolResult | None:
        came, answers = params.input_responses or {}, call["answers"]
        if Flaw.CRASHES_ON_UNKNOWN_ANSWERS in self._flaws:
            _ = [_QUESTIONS[key] for key in came]
        expected = list(call["asked"])
        if Flaw.TRUSTS_ANSWERS_WITHOUT_TOKEN in self._flaws and params.request_state is None:
            expected = list(came)
        if Flaw.TRUSTS_EARLY_ANSWERS in self._flaws and params.request_state is not None:
            expected = list(came)
        missing = [key for key in expected if key not in came]
        if missing and Flaw.FAILS_ON_MISSING_ANSWERS in self._flaws:
            raise MCPError(INVALID_PARAMS, f"no answer to {missing[0]!r}")
        if missing and Flaw.FORGETS_SIBLINGS in self._flaws:
            return None
        for key in expected:
            if key not in came or key not in _QUESTIONS:
                continue
            answer, question = came[key], _QUESTIONS[key]
            if Flaw.CRASHES_ON_GARBAGE in self._flaws and isinstance(answer, ElicitResult):
                _ = (answer.content or {})[question.field]
            if isinstance(answer, ElicitResult) and answer.action != "accept":
                return _text("The user did not want to.", is_error=True)
            content = answer.content if isinstance(answer, ElicitResult) else None
            if question.is_answered_by(content):
                answers[key] = (content or {})[question.field]
            elif Flaw.TAKES_GARBAGE in self._flaws:
                answers[key] = "whatever"
        if Flaw.REMEMBERS_ANSWERS_BY_ARGUMENT in self._flaws:
            remembered = self._answers.setdefault(json.dumps([params.name, params.arguments]), {})
            remembered.update(answers)
            answers.update(remembered)
        return None

    # What it is all for.

    async def _book(self, call: Mapping[str, Any], params: CallToolRequestParams) -> CallToolResult:
        if not _TOOLS[params.name]:
            return _text("hello")
        done, number = self._ledger.done, call["id"]
        if number in done:
            if Flaw.CRASHES_ON_WHAT_IS_DONE in self._flaws:
                raise RuntimeError("this call has been served")
            if Flaw.BOOKS_TWICE not in self._flaws:
                return _text(done[number])
        if Flaw.BOOKS_TWICE_AT_ONCE in self._flaws:
            await anyio.lowlevel.checkpoint()
        self._ledger.booked.append(params.name)
        answers = ", ".join(str(call["answers"][key]) for key in sorted(call["answers"]))
        done[number] = f"{params.name}: {answers}, number {len(self._ledger.booked)}"
        return _text(done[number])


def _asking(question: _Question) -> ElicitRequest:
    schema = {"type": "object", "properties": {question.field: question.shape}, "required": [question.field]}
    return ElicitRequest(params=ElicitRequestFormParams(message=question.message, requested_schema=schema))


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "book": {"seat": "back", "snack": "nuts"},
    "review": {"stars": 4, "words": "quite long"},
    "transfer": {"sender": "ada", "receiver": "eve"},
    "greet": {},
}
HONEST: Final = {
    "book": "book: back, nuts, number 1",
    "review": "review: 4, quite long, number 1",
    "transfer": "transfer: eve, ada, number 1",
    "greet": "hello",
}


async def call(
    make: Callable[..., Server[Any]] | Server[Any] | Sequence[Server[Any]],
    tool: str,
    *network: Network,
    **options: Any,
) -> Conversation:
    arguments = {} if tool == "greet" else {"film": "Solaris"}
    user = User(make, ANSWERS[tool], network=network, principal="ada", **options)
    return await user.call(tool, arguments)


def honest(name: str) -> Network:
    """Return a network that works in front of a server without tracers."""
    return Eavesdrop([SECRET]) if name == "eavesdrop" else NETWORKS[name]()
