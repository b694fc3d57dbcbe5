"""Tool calls: find the tool, check that the request may see it, and serve one leg of its function.

In the retry era, a middleware replaces the SDK's handler and returns the result in wire format. The SDK would serialize
the handler's model, validate it against the revision's models, and serialize it again. Questions and most results do
not need that validation, because their parts are checked one by one. Results that an author made by hand, and all
requests, are still validated.
"""

from __future__ import annotations

import logging
import marshal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import validate_mcp_param_headers
from mcp_types import (
    SERVER_INFO_META_KEY,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)
from mcp_types.methods import validate_client_request
from pydantic import ValidationError
from starlette.requests import Request
from typing_extensions import override

from roundtrip.engine.leg import Finished, HandedOver, JoinedCall, Suspended
from roundtrip.errors import RejectionReason
from roundtrip.legs.requests import Incoming, RequestRecord, token_rejection
from roundtrip.legs.runner import ServedEnd, result_of
from roundtrip.on_demand import load_on_use
from roundtrip.revisions import is_retry_era
from roundtrip.stored.desk import ClientCall, Proceed, ToolHost
from roundtrip.tools.registered import RegisteredTool
from roundtrip.tools.registry import ToolRegistry, UnknownTool, version_key
from roundtrip.tools.replies import result_of_reply, text_result, written

if TYPE_CHECKING:
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.questions import forms
    from roundtrip.tools import failures
    from roundtrip.visibility.gates import GateEvaluator, OpenGates

load_on_use(globals(), "roundtrip.questions.forms", "roundtrip.tools.failures")

logger = logging.getLogger("roundtrip")

_METHOD: Final = "tools/call"

_NEEDED: Final = frozenset({"name", "_meta"})
_PLAIN_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "name": (str,),
    "arguments": (dict, type(None)),
    "inputResponses": (dict, type(None)),
    "requestState": (str, type(None)),
    "_meta": (dict,),
}
"""The expected type of each parameter. If all types match, only `_meta` and the answers need validation."""
_FORMS: Final = dict[str, ElicitResult]
_FORM_FIELDS: Final = frozenset({"action", "content"})
_MAX_METAS: Final = 128
_MAX_META_BYTES: Final = 2000


@dataclass(eq=False, repr=False)
class ToolCalls(ToolHost):
    """Innermost middleware, which replaces the SDK's handler and serves one server's tool calls."""

    tools: ToolRegistry
    gates: Callable[[], GateEvaluator]
    """Returns the evaluator for visibility gates."""
    probe: RegisteredTool | None
    """The tool that answers `roundtrip doctor`, if the server has it."""
    masks_errors: Callable[[], bool]
    """Returns True if clients must not read the texts of unexpected exceptions."""
    has_own_handler: Callable[[], bool]
    """Returns True if the SDK's own handler is registered for tool calls."""
    _stamp: dict[str, Any] | None = field(default=None, init=False)
    _valid_metas: set[bytes] = field(default_factory=set[bytes], init=False)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a tool call if no other middleware follows. Pass all other messages on."""
        if (
            ctx.method != _METHOD
            or not is_retry_era(ctx.protocol_version)
            or self.low_level.middleware[-1] is not self
            or not self.has_own_handler()
        ):
            return await call_next(ctx)
        params = ctx.params or {}
        answers = self._validate(ctx.protocol_version, params)
        name: str = params["name"]
        arguments: dict[str, Any] = params.get("arguments") or {}
        incoming = Incoming.of(ctx, answers)
        end = await self._at_desk(name, incoming, partial(self.serve_stored, name, arguments, incoming))
        return self._stamped(end if isinstance(end, dict) else _sent(end, ctx.protocol_version))

    async def serve_in_handler(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Serve one leg of a client's call in the SDK's handler, so that the host's hooks surround the leg.

        A handler cannot return a task handle. The handle is set as the request's reply, which replaces the handler's
        result.

        Raises:
            ToolError: The tool is unknown, its arguments are invalid, or the tool raised this error deliberately.
            MCPError: The tool raised a protocol error, its client cannot be asked, or the store cannot be used.
        """
        record = incoming.record
        end = await self._at_desk(name, incoming, partial(self.serve, name, arguments, incoming, version))
        if not isinstance(end, dict):
            return result_of(end)
        if record is not None and end.get("resultType") == "task":
            record.reply = {**end, "_meta": self.stamp()}
            return CallToolResult(content=[])
        return result_of_reply(end)

    async def _at_desk(self, name: str, incoming: Incoming, run: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one leg for a client. Return the leg's end, or the reply if the call is stored."""
        record = incoming.record
        if record is None or not self.desk.features:
            return await run()
        return await self.desk.serve(ClientCall(name, record, partial(self._function_of, name, record)), run)

    @override
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> ServedEnd:
        # As in the SDK's handler, an error in a tool becomes an error result.
        try:
            return await self.serve(name, arguments, incoming, version)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - as the SDK's handler does
            failures.log_tool_failure(name, error)
            return Finished(text_result(str(error), is_error=True))

    def _function_of(self, name: str, record: RequestRecord) -> AskingFunction:
        """Return the function of the tool that a request has called."""
        handed = record.journal_to_store
        return self.find(name, handed.version if handed is not None else named_version(record.context.params))

    @override
    def find(self, name: str, version: str | None) -> AskingFunction:
        return self.tools.registered_as(name, version).function

    @override
    def has_tool(self, name: str, version: str | None) -> bool:
        try:
            return bool(list(self.tools.find(name, version)))
        except ToolError:
            return False

    @override
    def is_gated(self, name: str, version: str | None) -> bool:
        try:
            return self.tools.find(name, version)[0].visibility_gate is not None
        except ToolError:
            return False

    @override
    async def listed_meta(self, name: str, function: AskingFunction) -> Mapping[str, Any]:
        return self.tools.registered_as(name, function.version).listing.meta or {}

    @override
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        if not self.is_gated(name, version):
            try:
                return self.tools.sees(self.tools.registered_as(name, version))
            except ToolError:
                return True  # a tool of another server that shares the store
        for tool in self.tools.find(name, version):
            gate = tool.visibility_gate
            opened = await self.gates().open(gate, request) if gate is not None else None
            if opened is not None:
                await opened.around(_nothing())
            if gate is None or opened is not None:
                return True
        return False

    def _validate(self, revision: str, params: Mapping[str, Any]) -> InputResponses | None:
        """Validate a request's parameters as the SDK does. A repeated `_meta` is validated only once.

        Returns:
            The answers if all of them are form answers, else None.

        Raises:
            ValidationError: The parameters are invalid.
        """
        answers = meta = None
        if params.keys() >= _NEEDED and all(type(value) in _PLAIN_TYPES.get(key, ()) for key, value in params.items()):
            sent = params.get("inputResponses")
            if sent is None or (answers := _read_forms(sent)) is not None:
                # In this marshal version, equal values have equal bytes, but 1 and True do not.
                with suppress(ValueError):
                    meta = marshal.dumps((revision, params["_meta"]), 2)
                if meta in self._valid_metas:
                    return answers
        validate_client_request(_METHOD, revision, params)
        if meta is not None and len(meta) <= _MAX_META_BYTES:
            if len(self._valid_metas) >= _MAX_METAS:
                self._valid_metas.clear()
            self._valid_metas.add(meta)
        return answers

    def _stamped(self, result: dict[str, Any]) -> dict[str, Any]:
        meta: dict[str, Any] = result.get("_meta") or {}
        if meta.get(SERVER_INFO_META_KEY) is None:
            result["_meta"] = {**meta, SERVER_INFO_META_KEY: self._server_info()}
        return result

    def _server_info(self) -> dict[str, Any]:
        """Return a copy of the server's description, because callers may change it."""
        if self._stamp is None:
            self._stamp = self.low_level.server_info_stamp
        if "icons" in self._stamp:
            return self.low_level.server_info_stamp
        return self._stamp.copy()

    async def serve(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> ServedEnd:
        """Serve one leg of a call.

        Raises:
            ToolError: The tool is unknown, its arguments are invalid, or the tool raised this error deliberately.
            MCPError: The tool raised a protocol error, or its client cannot be asked.
        """
        probe = self.probe
        if probe is not None and name == probe.name and name not in self.tools:
            return await self._run(probe, arguments, incoming)
        wanted = version if version is not None else _requested_version(name, incoming)
        if self.legs.parts.effects.dry_run is not None:
            return await self._rehearse(name, arguments, incoming, wanted)
        for tool in self.tools.find(name, wanted):
            gate = tool.visibility_gate
            task = incoming.record.stored if incoming.record is not None else None
            # The gate was evaluated when the task was created. Now the gate cannot be evaluated, because there is no
            # request.
            if gate is None or (task is not None and task.request is None):
                return await self._run(tool, arguments, incoming)
            opened = await self.gates().open(gate, incoming.request)
            if opened is not None:
                return await opened.around(self._run(tool, arguments, incoming, opened))
        raise UnknownTool(name)

    async def _rehearse(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, wanted: str | None
    ) -> ServedEnd:
        """Serve one leg of a rehearsal. The tool runs even if its visibility gate is closed, because a rehearsal has no
        user.
        """
        tool = self.tools.registered_as(name, wanted)
        gate = tool.visibility_gate
        opened = await self.gates().open(gate, incoming.request) if gate is not None else None
        if opened is not None:
            return await opened.around(self._run(tool, arguments, incoming, opened))
        dry_run = self.legs.parts.effects.dry_run
        if dry_run is not None and (gate is not None or not self.tools.sees(tool)):
            dry_run.let_in(f"tool {name!r}")
        return await self._run(tool, arguments, incoming)

    async def _run(
        self, tool: RegisteredTool, arguments: dict[str, Any], incoming: Incoming, opened: OpenGates | None = None
    ) -> ServedEnd:
        if tool.names_headers:
            _check_headers(tool, incoming)
        try:
            validated = tool.arguments.validate(arguments)
            is_traced = tool is not self.probe and tool.function not in self.desk.untraced
            return await self.legs.run(tool.function, validated, incoming, opened, is_traced=is_traced)
        except Exception as error:  # noqa: BLE001 - raised again, as the SDK's handler expects it
            return Finished(failures.failed_tool(tool.name, error, mask=self.masks_errors()))


async def _nothing() -> None: ...


def _read_forms(answers: Mapping[str, Any]) -> InputResponses | None:
    """Return a request's answers if all are valid form answers, else None."""
    if not all(type(answer) is dict and answer.keys() <= _FORM_FIELDS for answer in answers.values()):
        return None
    try:
        return forms.adapter_for(_FORMS).validate_python(answers)
    except ValidationError:
        return None


def named_version(params: Mapping[str, Any] | None) -> str | None:
    """Return the tool version that a request's metadata names, in `roundtrip/version` or in the form that FastMCP
    clients use.
    """
    meta = (params or {}).get("_meta")
    if not isinstance(meta, Mapping):
        return None
    known = cast("Mapping[str, Any]", meta)
    version = known.get("roundtrip/version")
    if version is None and isinstance(other := known.get("fastmcp"), Mapping):
        version = cast("Mapping[str, Any]", other).get("version")
    return None if version is None else str(version)


def _called_by_client(name: str, incoming: Incoming) -> RequestRecord | None:
    """Return the request's record if the client called this tool; None if another function called the tool."""
    record = incoming.record
    if record is None or record.is_taken or record.context.method != _METHOD:
        return None
    return record if (record.context.params or {}).get("name") == name else None


def _requested_version(name: str, incoming: Incoming) -> str | None:
    """Return the tool version with which a request's call began, or else the version that the request names.

    Raises:
        MCPError: The call began with a version other than the one that the request names.
    """
    record = _called_by_client(name, incoming)
    if record is None:
        return None
    named = named_version(record.context.params)
    if record.journal is None:
        return named
    begun = record.journal.version
    if named is not None and version_key(named) != version_key(begun):
        record.reason = RejectionReason.OTHER_VERSION
        raise token_rejection()
    return begun


def _check_headers(tool: RegisteredTool, incoming: Incoming) -> None:
    """Check the `Mcp-Param-*` headers of a client's request for this tool.

    The SDK checks headers only for tools with one version and no visibility gate. That check runs before gates are
    evaluated, so for other tools it would reveal that a hidden tool exists.

    Raises:
        MCPError: A header disagrees with its argument. The message is the same as the SDK's.
    """
    record = _called_by_client(tool.name, incoming)
    # A task's first request was already checked.
    if record is None or record.stored is not None or not is_retry_era(record.context.protocol_version):
        return
    request: object = record.context.request
    arguments: object = (record.context.params or {}).get("arguments") or {}
    if not isinstance(request, Request) or not isinstance(arguments, Mapping):
        return
    headers = cast("Request[Any]", request).headers
    schema = tool.listing.input_schema
    rejection = validate_mcp_param_headers(schema, cast("Mapping[str, Any]", arguments), headers)
    if rejection is not None:
        raise MCPError(code=rejection.code, message=rejection.message, data=rejection.data)


def _sent(end: ServedEnd, revision: str) -> dict[str, Any]:
    """Convert a leg's end to the retry era's wire format."""
    if isinstance(end, Suspended):
        requests = {key: waiting.sent() for key, waiting in end.questions.items()}
        return {"inputRequests": requests, "requestState": end.state, "resultType": "input_required"}
    if isinstance(end, HandedOver | JoinedCall):
        raise RuntimeError("a call became a task on a server without tasks")
    return written(end.value if isinstance(end, Finished) else end.result, revision)
