"""Calls of tools on 2026-07-28, answered in the shape of the wire.

A handler of the SDK returns a model, which the SDK writes out, validates against the revision's own models, and writes
out once more. The questions of a leg and most results are made here of parts that were checked one by one, so they
take a shorter way: a middleware may answer in the place of the handler, and its answer goes out as it is. What an
author made by hand is validated as ever, and so is whatever comes in.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    TextContent,
)
from mcp_types.methods import serialize_server_result, validate_client_request
from pydantic import ValidationError

from roundtrip.engine.leg import Authored, Finished, Suspended
from roundtrip.revisions import is_retry_era
from roundtrip.server.failures import Crashed, log_unknown
from roundtrip.server.leg_runner import Incoming
from roundtrip.server.tools.registry import UnknownTool

__all__ = ["ToolCalls"]

# The SDK's own, so that whoever listens to it hears of the same failures in the same words.
logger = logging.getLogger("mcp.server.mcpserver.server")

_METHOD: Final = "tools/call"

Serve = Callable[[str, dict[str, Any], Incoming], Awaitable[Finished | Suspended | Authored]]
"""Serves one leg of a call: of a tool's name, with arguments, for a request."""


class Handlers(Protocol):
    """What this stands in front of."""

    @property
    def middleware(self) -> list[Any]:
        """What stands around the handlers, the outermost first."""
        ...

    @property
    def has_own_tool_handler(self) -> bool:
        """Whether nothing but the server itself answers calls of tools."""
        ...

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """What every result of 2026-07-28 says of the server."""
        ...


class ToolCalls:
    """The innermost middleware: it answers where it is the last before a handler that does nothing else."""

    def __init__(self, handlers: Handlers, serve: Serve) -> None:
        self._handlers = handlers
        self._serve = serve
        self._stamp: dict[str, Any] | None = None

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        handlers = self._handlers
        if (
            ctx.method != _METHOD
            or not is_retry_era(ctx.protocol_version)
            or handlers.middleware[-1] is not self
            or not handlers.has_own_tool_handler
        ):
            return await call_next(ctx)
        params = ctx.params or {}
        validate_client_request(_METHOD, ctx.protocol_version, params)
        responses = None
        if params.get("inputResponses") is not None:
            responses = CallToolRequestParams.model_validate(params, by_name=False).input_responses
        name: str = params["name"]
        incoming = Incoming(ctx, responses, params.get("requestState"))
        try:
            end = await self._serve(name, params.get("arguments") or {}, incoming)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - as the SDK's handler does: it is the result of the tool
            _log(name, error)
            return self._stamped(_written(_failed(str(error)), ctx.protocol_version))
        return self._stamped(_sent(end, ctx.protocol_version))

    def _stamped(self, result: dict[str, Any]) -> dict[str, Any]:
        meta = result.get("_meta")
        if meta is None:
            result["_meta"] = {SERVER_INFO_META_KEY: self._server_info()}
        elif meta.get(SERVER_INFO_META_KEY) is None:
            result["_meta"] = {**meta, SERVER_INFO_META_KEY: self._server_info()}
        return result

    def _server_info(self) -> dict[str, Any]:
        """What results say of the server; whoever gets it may change it."""
        if self._stamp is None:
            self._stamp = self._handlers.server_info_stamp
        if "icons" in self._stamp:
            return self._handlers.server_info_stamp
        return self._stamp.copy()


def _sent(end: Finished | Suspended | Authored, revision: str) -> dict[str, Any]:
    """How a leg ended, as 2026-07-28 carries it."""
    if isinstance(end, Suspended):
        requests = {key: waiting.sent() for key, waiting in end.questions.items()}
        return {"inputRequests": requests, "requestState": end.state, "resultType": "input_required"}
    return _written(end.value if isinstance(end, Finished) else end.result, revision)


def _written(result: CallToolResult | InputRequiredResult, revision: str) -> dict[str, Any]:
    """A result as 2026-07-28 carries it.

    Raises:
        MCPError: It is none.
    """
    if type(result) is CallToolResult and result.meta is None and len(result.content) == 1:
        (block,) = result.content
        if type(block) is TextContent and block.annotations is None and block.meta is None:
            written: dict[str, Any] = {
                "content": [{"text": block.text, "type": "text"}],
                "isError": result.is_error,
                "resultType": "complete",
            }
            if result.structured_content is not None:
                written["structuredContent"] = result.structured_content
            return written
    try:
        data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return serialize_server_result(_METHOD, revision, data)
    except ValidationError:
        # The SDK's words: what pydantic says would repeat the result.
        logger.exception("handler for %r returned an invalid result", _METHOD)
        raise MCPError(code=INTERNAL_ERROR, message="Handler returned an invalid result") from None


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _log(name: str, error: Exception) -> None:
    """Tell of a failed tool what the SDK's handler tells."""
    if isinstance(error, UnknownTool):
        log_unknown("Tool")
    elif isinstance(error.__cause__, Crashed):
        logger.info("Tool %r failed again as it did when its body ran", name)
    elif not isinstance(error, ToolError) or isinstance(error, UnexpectedToolError):
        logger.error("Tool %r raised an unexpected exception", name, exc_info=error)
    elif isinstance(error.__cause__, ValidationError):
        # Names of fields only: the values are the client's.
        fields = sorted({".".join(str(part) for part in each["loc"]) for each in error.__cause__.errors()})
        logger.info("Tool %r rejected arguments: %r", name, fields)
    else:
        logger.info("Tool %r failed: %r", name, str(error))
