"""A small multi-round server without any SDK, and servers like it with one fault each.

The SDK's servers check much by themselves, so most of these faults could not be made with them.
"""

import base64
import hashlib
import hmac
import json
import time
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from cryptography.fernet import Fernet, InvalidToken
from starlette.types import Receive, Scope, Send

__all__ = ["FAULTS", "SECRET", "TTL", "RightServer", "WrongServer"]

SECRET: Final = "voucher-4711"
TTL: Final = 2.0

_MAX_BODY_BYTES: Final = 500_000
_FORM: Final = "elicitation/create"

Json = dict[str, Any]


def _form(message: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": _FORM, "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def _text(text: str, *, is_error: bool = False) -> Json:
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": is_error}


@dataclass
class Rejection(Exception):
    code: int
    message: str
    data: Any = None


BAD_STATE: Final = Rejection(-32602, "Invalid or expired requestState")


class RightServer:
    """Asks two questions for `book`, one for `cancel`, and one in the task of `plan`."""

    def __init__(self, *, ttl: float = 600.0) -> None:
        self.ttl = ttl
        self.fernet = Fernet(base64.urlsafe_b64encode(b"k" * 32))
        self.done: dict[str, str] = {}
        self.booked = 0
        self.tasks: dict[str, Json] = {}

    # HTTP

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, kind, text = await self.respond(body, headers.get("authorization", ""))
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]}
        await send(start)
        await send({"type": "http.response.body", "body": text.encode()})

    async def respond(self, body: bytes, user: str) -> tuple[int, str, str]:
        if len(body) > _MAX_BODY_BYTES:
            return 413, "text/plain", "too large"
        request = json.loads(body)
        answer: Json = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            answer["result"] = self.result_of(request["method"], request.get("params") or {}, user)
        except Rejection as error:
            answer["error"] = {"code": error.code, "message": error.message, "data": error.data}
            return 400, "application/json", self.written(answer)
        return 200, "application/json", self.written(answer)

    def written(self, answer: Json) -> str:
        return json.dumps(answer)

    # Methods

    def result_of(self, method: str, params: Json, user: str) -> Json:
        match method:
            case "server/discover":
                return {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "serverInfo": {"name": "cinema", "version": "1"},
                    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
                }
            case "tools/list":
                return self.listed()
            case "tools/call":
                if params["name"] == "plan":
                    return self.plan(params, user)
                return self.call(params, user)
            case "tasks/get":
                return self.task(params, user)
            case "tasks/update":
                return self.update(params, user)
            case _:
                raise Rejection(-32601, "Method not found")

    def listed(self) -> Json:
        schema = {"type": "object", "properties": {"film": {"type": "string"}}, "required": ["film"]}
        return {
            "resultType": "complete",
            "tools": [{"name": name, "inputSchema": schema} for name in ("book", "cancel", "plan")],
        }

    # Calls

    def rounds(self, tool: str) -> list[str]:
        return ["seat", "snack"] if tool == "book" else ["sure"]

    def question(self, key: str) -> Json:
        match key:
            case "seat":
                row: Json = {"type": "string", "enum": ["front", "middle"], "default": "middle"}
                return _form("Which row?", row=row)
            case "snack":
                return _form("Which snack?", name={"type": "string", "minLength": 3})
            case _:
                return _form("Sure?", yes={"type": "boolean"})

    def call(self, params: Json, user: str) -> Json:
        call = self.restored(params, user)
        answers = self.checked(params.get("inputResponses", {}))
        self.take(call, answers)
        missing = [key for key in self.rounds(params["name"]) if key not in call["answers"]]
        if missing:
            call["asked"] = missing[:1]
            self.require_capability(params)
            return self.asking(call)
        return self.finish(call)

    def restored(self, params: Json, user: str) -> Json:
        if "requestState" in params:
            call = self.opened(params["requestState"])
            self.require_same(call, params, user)
            return call
        return {
            "id": uuid.uuid4().hex,
            "tool": params["name"],
            "arguments": params["arguments"],
            "user": user,
            "until": time.time() + self.ttl,
            "answers": {},
            "asked": [],
        }

    def require_same(self, call: Json, params: Json, user: str) -> None:
        if call["tool"] != params["name"] or call["arguments"] != params["arguments"]:
            raise BAD_STATE
        self.require_user(call, user)
        self.require_fresh(call)

    def require_user(self, call: Json, user: str) -> None:
        if call["user"] != user:
            raise BAD_STATE

    def require_fresh(self, call: Json) -> None:
        if call["until"] < time.time():
            raise BAD_STATE

    def require_capability(self, params: Json) -> None:
        capabilities = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        modes = capabilities.get("elicitation")
        if modes is None or (modes and "form" not in modes):
            raise Rejection(-32021, "Missing", {"requiredCapabilities": {"elicitation": {"form": {}}}})

    def asking(self, call: Json) -> Json:
        return {
            "resultType": "input_required",
            "inputRequests": {key: self.question(key) for key in call["asked"]},
            "requestState": self.sealed(call),
        }

    def finish(self, call: Json) -> Json:
        if call["id"] not in self.done:
            self.booked += 1
            self.done[call["id"]] = f"{call['arguments']['film']}: {call['answers']}, number {self.booked}"
        return _text(self.done[call["id"]])

    # The state

    def sealed(self, call: Json) -> str:
        return self.fernet.encrypt(json.dumps(call).encode()).decode()

    def opened(self, state: Any) -> Json:
        if not isinstance(state, str) or not state.isascii():
            raise BAD_STATE
        try:
            # One state has one spelling.
            if base64.urlsafe_b64encode(base64.urlsafe_b64decode(state)).decode() != state:
                raise BAD_STATE
            return json.loads(self.fernet.decrypt(state))
        except (InvalidToken, ValueError):
            raise BAD_STATE from None

    # Answers

    def checked(self, answers: Any) -> Json:
        if not isinstance(answers, dict):
            raise Rejection(-32602, "inputResponses must be an object")
        return cast("Json", answers)

    def take(self, call: Json, answers: Json) -> None:
        for key in call["asked"]:
            if key in answers:
                self.take_one(call, key, answers[key])

    def take_one(self, call: Json, key: str, answer: Any) -> None:
        if not isinstance(answer, dict) or cast("Json", answer).get("action") not in ("accept", "decline", "cancel"):
            raise Rejection(-32602, f"the answer to {key} is malformed")
        content = cast("Json", answer).get("content")
        if answer["action"] == "accept" and not isinstance(content, dict):
            raise Rejection(-32602, f"the answer to {key} is malformed")
        if self.fits(key, cast("Json", content or {})):
            call["answers"][key] = content

    def fits(self, key: str, content: Json) -> bool:
        match key:
            case "seat":
                return content.get("row") in ("front", "middle")
            case "snack":
                return isinstance(content.get("name"), str) and len(content["name"]) >= 3
            case _:
                return isinstance(content.get("yes"), bool)

    # Tasks

    def plan(self, params: Json, user: str) -> Json:
        capabilities = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        if "extensions" not in capabilities:
            needed: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
            raise Rejection(-32021, "Missing", {"requiredCapabilities": needed})
        return self.new_task(user)

    def new_task(self, user: str) -> Json:
        id = uuid.uuid4().hex
        self.tasks[id] = {"user": user, "open": ["seat", "snack"], "number": 1}
        return {"resultType": "task", "taskId": id, "status": "working", "pollIntervalMs": 1}

    def task_of(self, params: Json, user: str) -> Json:
        task = self.tasks.get(params["taskId"])
        if task is None or not self.may_see(task, user):
            raise Rejection(-32602, "Task not found")
        return task

    def may_see(self, task: Json, user: str) -> bool:
        return task["user"] == user

    def key_of(self, task: Json) -> str:
        return f"{task['open'][0]}#{task['number']}"

    def task(self, params: Json, user: str) -> Json:
        task = self.task_of(params, user)
        base = {"resultType": "complete", "taskId": params["taskId"], "pollIntervalMs": 1}
        if not task["open"]:
            return {**base, "status": "completed", "result": _text("planned")}
        return {
            **base,
            "status": "input_required",
            "inputRequests": {self.key_of(task): self.question(task["open"][0])},
        }

    def update(self, params: Json, user: str) -> Json:
        task = self.task_of(params, user)
        key = self.key_of(task) if task["open"] else ""
        answer = params["inputResponses"].get(key)
        if answer is not None:
            if self.fits(task["open"][0], answer.get("content") or {}):
                task["open"].pop(0)
            task["number"] += 1
        return {"resultType": "complete"}


class WrongServer(RightServer):
    """A server with one fault."""

    fails: tuple[str, ...] = ()
    """The clauses that it breaks, all of them."""
    options: Mapping[str, Any] = {}
    """Options of the audit that it takes to see the fault."""
    tools: tuple[str, ...] = ("book",)
    more: Mapping[str, Any] | None = None
    """The schema of a field that its forms have besides."""

    def question(self, key: str) -> Json:
        question = super().question(key)
        if self.more is not None:
            question["params"]["requestedSchema"]["properties"]["more"] = self.more
        return question


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class SignsNothing(WrongServer):
    fails = ("S4.forged",)

    def sealed(self, call: Json) -> str:
        return _base64(json.dumps({**call, "sum": 0}).encode())

    def opened(self, state: Any) -> Json:
        try:
            call = json.loads(base64.urlsafe_b64decode(state + "=" * (-len(state) % 4)))
            # Only what a rewritten state keeps: every other change is rejected.
            if _base64(json.dumps(call).encode()) != state and _base64(_compact(call)) != state:
                raise BAD_STATE
            return {key: call[key] for key in ("id", "tool", "arguments", "user", "until", "answers", "asked")}
        except (ValueError, TypeError, KeyError):
            raise BAD_STATE from None

    def require_same(self, call: Json, params: Json, user: str) -> None:
        if not isinstance(call["answers"], dict) or not isinstance(call["until"], float):
            raise BAD_STATE
        super().require_same(call, params, user)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class IgnoresBrokenCharacters(WrongServer):
    fails = ("S4.tampered",)

    def opened(self, state: Any) -> Json:
        return super().opened(state.rstrip("!\n") if isinstance(state, str) else state)


class AcceptsTruncated(WrongServer):
    fails = ("S4.truncated",)

    def __init__(self, *, ttl: float = 600.0) -> None:
        super().__init__(ttl=ttl)
        self.sent: list[str] = []

    def sealed(self, call: Json) -> str:
        self.sent.append(super().sealed(call))
        return self.sent[-1]

    def opened(self, state: Any) -> Json:
        whole = [one for one in self.sent if isinstance(state, str) and len(state) > 8 and one.startswith(state)]
        return super().opened(whole[-1] if whole else state)


class AcceptsInvented(WrongServer):
    fails = ("S4.invented",)

    def opened(self, state: Any) -> Json:
        if state == "roundtrip-audit":
            return {"id": "debug", "answers": {"seat": {"row": "front"}, "sure": {"yes": True}}, "asked": ["snack"]}
        return super().opened(state)

    def require_same(self, call: Json, params: Json, user: str) -> None:
        if call["id"] == "debug":
            call.update(tool=params["name"], arguments=params["arguments"], user=user, until=time.time() + 9)
            call["answers"]["snack"] = {"name": "nuts"}
        super().require_same(call, params, user)


class BindsNoTool(WrongServer):
    fails = ("S5.tool",)
    tools = ("book", "cancel")

    def require_same(self, call: Json, params: Json, user: str) -> None:
        call["tool"] = params["name"]
        super().require_same(call, params, user)


class BindsNoArguments(WrongServer):
    fails = ("S5.arguments",)

    def require_same(self, call: Json, params: Json, user: str) -> None:
        call["arguments"] = params["arguments"]
        super().require_same(call, params, user)


class BindsNoUser(WrongServer):
    fails = ("S5.principal",)

    def require_user(self, call: Json, user: str) -> None:
        pass


class AcceptsExpired(WrongServer):
    fails = ("S5.expiry",)
    options: Mapping[str, Any] = {"stale": 0.5}

    def require_fresh(self, call: Json) -> None:
        pass


class ActsTwice(WrongServer):
    fails = ("S5.once",)
    options: Mapping[str, Any] = {"once": frozenset({"book"})}

    def finish(self, call: Json) -> Json:
        self.done.pop(call["id"], None)
        return super().finish(call)


class TellsFaultsApart(WrongServer):
    fails = ("A1",)

    def require_same(self, call: Json, params: Json, user: str) -> None:
        if call["tool"] != params["name"] or call["arguments"] != params["arguments"]:
            raise Rejection(-32602, "requestState is of another request")
        super().require_same(call, params, user)


class ShowsTracebacks(WrongServer):
    fails = ("A2", "A5")

    def opened(self, state: Any) -> Json:
        try:
            return super().opened(state)
        except Rejection:
            raise Rejection(-32603, f"Internal error\n{traceback.format_exc()}") from None


class ShowsSecrets(WrongServer):
    fails = ("P1",)
    options: Mapping[str, Any] = {"secrets": (SECRET,)}

    def sealed(self, call: Json) -> str:
        body = _base64(_compact({**call, "voucher": SECRET}))
        return f"{body}.{self._mac(body)}"

    def _mac(self, body: str) -> str:
        return _base64(hmac.digest(b"k" * 32, body.encode(), hashlib.sha256))

    def opened(self, state: Any) -> Json:
        body, _, mac = state.partition(".") if isinstance(state, str) and state.isascii() else ("", "", "")
        if not body or not hmac.compare_digest(self._mac(body), mac):
            raise BAD_STATE
        return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


class ValidatesNoAnswers(WrongServer):
    fails = ("S9.content",)

    def fits(self, key: str, content: Json) -> bool:
        return True


class FailsOnMalformedAnswers(WrongServer):
    fails = ("S9.malformed",)

    def call(self, params: Json, user: str) -> Json:
        try:
            return super().call(params, user)
        except Rejection as error:
            if "malformed" in error.message or "inputResponses" in error.message:
                return _text("Something went wrong", is_error=True)
            raise


class DiesOfMalformedAnswers(WrongServer):
    fails = ("S9.alive",)
    is_dead = False

    async def respond(self, body: bytes, user: str) -> tuple[int, str, str]:
        if self.is_dead:
            return 503, "text/plain", "Service Unavailable"
        return await super().respond(body, user)

    def checked(self, answers: Any) -> Json:
        self.is_dead = not isinstance(answers, dict)
        return super().checked(answers)


class TakesEarlyAnswers(WrongServer):
    fails = ("S8.early",)

    def take(self, call: Json, answers: Json) -> None:
        if call["asked"]:
            call["asked"] = self.rounds(call["tool"])
        super().take(call, answers)


class RejectsUnknownAnswers(WrongServer):
    fails = ("S8.unknown",)

    def take(self, call: Json, answers: Json) -> None:
        if set(answers) - {"seat", "snack", "sure"}:
            raise Rejection(-32602, "unknown answers")
        super().take(call, answers)


class TakesMissingAsAccepted(WrongServer):
    fails = ("S7.missing",)

    def take(self, call: Json, answers: Json) -> None:
        accepted = {
            key: {"action": "accept", "content": {"row": "front", "name": "nuts", "yes": True}} for key in call["asked"]
        }
        super().take(call, {**accepted, **answers})


class LosesItsState(WrongServer):
    """Asks again without the state that its own check then wants."""

    fails = ("S7.goes-on",)

    def call(self, params: Json, user: str) -> Json:
        result = super().call(params, user)
        if params.get("inputResponses") == {} and result["resultType"] == "input_required":
            del result["requestState"]
        return result


class CrashesOnOversized(WrongServer):
    fails = ("A3",)

    async def respond(self, body: bytes, user: str) -> tuple[int, str, str]:
        if len(body) > _MAX_BODY_BYTES:
            return 500, "text/plain", "Internal Server Error"
        return await super().respond(body, user)


class OmitsResultType(WrongServer):
    fails = ("R1",)

    def finish(self, call: Json) -> Json:
        result = super().finish(call)
        del result["resultType"]
        return result


class CallsQuestionsComplete(WrongServer):
    fails = ("S2.type",)

    def asking(self, call: Json) -> Json:
        return {**super().asking(call), "resultType": "complete"}


class SendsStateAsObject(WrongServer):
    fails = ("S2.content",)

    def asking(self, call: Json) -> Json:
        return {**super().asking(call), "requestState": {"call": super().sealed(call)}}

    def opened(self, state: Any) -> Json:
        return super().opened(cast("Json", state).get("call") if isinstance(state, dict) else state)


class IsNoJsonRpc(WrongServer):
    fails = ("R2",)

    def written(self, answer: Json) -> str:
        return json.dumps({**answer, "jsonrpc": "1.0"})


class RepeatsKeys(WrongServer):
    fails = ("S3.keys",)

    def written(self, answer: Json) -> str:
        text = super().written(answer)
        return (
            text.replace('"inputRequests": {', f'"inputRequests": {{"seat": {json.dumps(self.question("seat"))}, ')
            if ('"seat": {"method"' in text)
            else text
        )


class InventsQuestions(WrongServer):
    fails = ("S3.kinds",)

    def question(self, key: str) -> Json:
        return {"method": "user/ask", "params": {"message": "Which row?"}}


class SendsRequests(WrongServer):
    fails = ("S1.returned",)

    async def respond(self, body: bytes, user: str) -> tuple[int, str, str]:
        status, kind, text = await super().respond(body, user)
        if status != 200:
            return status, kind, text
        asks = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        return 200, "text/event-stream", f"data: {asks}\n\ndata: {text}\n\n"


class AsksForLists(WrongServer):
    fails = ("S1",)

    def listed(self) -> Json:
        return {**super().listed(), "resultType": "input_required", "requestState": "more"}


class AsksEverybody(WrongServer):
    fails = ("S6.declared",)

    def require_capability(self, params: Json) -> None:
        pass


class NamesNoCapability(WrongServer):
    fails = ("S6.error",)

    def require_capability(self, params: Json) -> None:
        try:
            super().require_capability(params)
        except Rejection:
            raise Rejection(-32602, "Unsupported client") from None


class WaitsForClients(WrongServer):
    """Serves no new call while too many clients have not come back."""

    fails = ("S10",)

    def __init__(self, *, ttl: float = 600.0) -> None:
        super().__init__(ttl=ttl)
        self.open: set[str] = set()

    def restored(self, params: Json, user: str) -> Json:
        call = super().restored(params, user)
        if len(self.open) > 8 and "requestState" not in params:
            raise Rejection(-32000, "try again later")
        self.open.add(call["id"])
        return call

    def finish(self, call: Json) -> Json:
        self.open.discard(call["id"])
        return super().finish(call)


class AsksForPasswords(WrongServer):
    fails = ("S11",)

    def question(self, key: str) -> Json:
        if key == "snack":
            return _form("Your password?", name={"type": "string", "minLength": 3, "title": "Password"})
        return super().question(key)


class NestsItsForm(WrongServer):
    fails = ("F1", "F4")
    more: Mapping[str, Any] | None = {"type": "object", "properties": {}}


class ListsChoicesOddly(WrongServer):
    fails = ("F2",)
    more: Mapping[str, Any] | None = {"type": "integer", "enum": [1, 2]}

    def fits(self, key: str, content: Json) -> bool:
        return super().fits(key, content) and content.get("more", 1) in (1, 2)


class HasBadDefaults(WrongServer):
    fails = ("F3",)
    more: Mapping[str, Any] | None = {"type": "integer", "default": "two"}

    def fits(self, key: str, content: Json) -> bool:
        return super().fits(key, content) and type(content.get("more", 2)) is int


class ReusesTaskKeys(WrongServer):
    fails = ("T1",)
    tools = ("plan",)

    def key_of(self, task: Json) -> str:
        return "question"


class MakesTasksForAll(WrongServer):
    fails = ("T2",)
    tools = ("plan",)

    def plan(self, params: Json, user: str) -> Json:
        return self.new_task(user)


class InventsTasks(WrongServer):
    fails = ("T3", "T4")
    tools = ("plan",)

    def task_of(self, params: Json, user: str) -> Json:
        task = self.tasks.get(params["taskId"])
        return task if task is not None and task["user"] == user else {"user": user, "open": [], "number": 0}


class ShowsTasksToAll(WrongServer):
    fails = ("T4",)
    tools = ("plan",)

    def may_see(self, task: Json, user: str) -> bool:
        return True


FAULTS: Final = tuple(WrongServer.__subclasses__())
"""All wrong servers."""
