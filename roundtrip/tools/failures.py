"""Map failures of a leg to errors for the client: one mapping for tools, one for prompts and resource templates."""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar

from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    MissingRequiredClientCapabilityErrorData,
    TextContent,
)
from pydantic import ValidationError

from roundtrip import errors
from roundtrip.legs.functions import AskingFunction
from roundtrip.on_demand import load_on_use
from roundtrip.text import quoted
from roundtrip.tools.arguments import ArgumentsRejected, fields_rejected_by, rejected_fields

if TYPE_CHECKING:
    from roundtrip.tools import registry
else:
    load_on_use(globals(), "roundtrip.tools.registry")

# The SDK's logger, with the SDK's messages for the same failures.
logger = logging.getLogger("mcp.server.mcpserver.server")
_roundtrip_logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_WORDS_CHARS: Final = 80
"""Characters of a question's message that replace its missing name."""
SERVER_ERROR: Final = -32000
"""The SDK uses it for closed connections, too: `data.reason` distinguishes them."""

_SERVER_ERRORS: Final = (
    (errors.ToolTimedOut, "tool_timeout", "{tool} {error}"),
    (errors.ThreadsExhausted, "threads_exhausted", "{tool} cannot run: {error}"),
    (errors.StillRunning, "still_running", "{error}"),
    (errors.LedgerUnavailable, "ledger_unavailable", "{error}"),
)
"""Errors that end a call with a protocol error: the reason in its data, and its message."""


class Crashed(Exception):
    """Crash of a body on an earlier leg, with the text of its exception. That leg logged it."""


def tool_failure(name: str, error: Exception, *, mask: bool) -> Exception:
    """Return the exception that the SDK's handler expects for a failed leg of a tool.

    A protocol error is returned unchanged. `mask` hides the text of a crash (`UnexpectedToolError`) from the model.
    """
    if isinstance(error, MCPError):
        return error
    if isinstance(error, errors.CannotAsk):
        return cannot_ask(error)
    for kind, reason, text in _SERVER_ERRORS:
        if isinstance(error, kind):
            data: dict[str, Any] = {"reason": reason, "tool": name}
            if isinstance(error, errors.ToolTimedOut):
                data["timeout"] = error.seconds
            return MCPError(code=SERVER_ERROR, message=text.format(tool=f"Tool {name!r}", error=error), data=data)
    prefix = f"Error executing tool {name}"
    if isinstance(error, Crashed):
        # Not an UnexpectedToolError, which the SDK would log: the earlier leg has logged the traceback.
        return ToolError(prefix if mask else f"{prefix}: {_sendable(str(error))}")
    if isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return UnexpectedToolError(prefix if mask else f"{prefix}: {_sendable(str(error))}")
    # An invalid signature that is found only now, and a value that cannot be sent or stored, count as crashes.
    foreseen = isinstance(error, ToolError | ResourceError | errors.RoundtripError)
    if foreseen and not isinstance(
        error, errors.InvalidSignature | errors.KeysMissing | errors.NotSendable | errors.ValueNotStorable
    ):
        return ToolError(f"{prefix}: {_sendable(str(error))}")
    return UnexpectedToolError(prefix if mask else f"{prefix}: {_sendable(str(error) or type(error).__name__)}")


def failed_tool(name: str, error: Exception, *, mask: bool) -> CallToolResult:
    """Return the result of a failed leg of a tool, whose text must not be logged; or raise as `tool_failure` says.

    Raises:
        ToolError: The arguments do not fit, or the tool failed.
        MCPError: The tool raised a protocol error, or its client cannot be asked.
    """
    failure = tool_failure(name, error, mask=mask)
    if failure is error:
        raise error
    told = told_by(failure, error)
    if told is None:
        # The log of rejected arguments reads their names from the cause.
        raise failure from (error.fields if isinstance(error, ArgumentsRejected) else error)
    # As a result, since the text of an error is logged.
    _roundtrip_logger.info("Tool %r failed: %r", name, str(failure))
    return CallToolResult(content=[TextContent(text=told)], is_error=True)


def told_by(failure: Exception, error: Exception) -> str | None:
    """Return the text of a tool's failure with the message of each unnamed question; None if it has no such question.

    A message may be secret, so do not log this text: log that of `failure`.
    """
    if not isinstance(failure, ToolError) or not isinstance(error, errors.RoundtripError):
        return None
    text = _with_words(str(failure), error)
    return text if text != str(failure) else None


def _with_words(text: str, error: errors.RoundtripError) -> str:
    for name, words in error.words.items():
        shown = words if len(words) <= _WORDS_CHARS else f"{words[:_WORDS_CHARS]}..."
        text = text.replace(repr(name), quoted(shown))
    return _sendable(text)


async def with_failures(run: Awaitable[T], function: AskingFunction) -> T:
    """Run a leg of a prompt or template, and raise the exceptions that the SDK's handlers expect.

    Raises:
        MCPError: The client cannot be asked, or a prompt failed: its result has no form for errors.
        ResourceError: A template failed.
        Exception: An exception of the author's code; the SDK hides its text.
    """
    try:
        return await run
    except errors.CannotAsk as error:
        raise cannot_ask(error) from error
    except (errors.InvalidSignature, errors.KeysMissing):
        # The author's mistake, found after registration. It is logged, and hidden from the client.
        raise
    except errors.RoundtripError as error:
        if function.kind == "resource":
            raise ResourceError(str(error)) from error
        raise MCPError(code=INTERNAL_ERROR, message=f"Error rendering prompt {function.name}: {error}") from error


def raise_prompt_failure(name: str, error: ValueError, *, for_client: bool) -> Never:
    """Raise the failure of a prompt; the SDK's dispatcher logs it with its causes."""
    fields = fields_rejected_by(error)
    if fields is not None:
        # The SDK's cause would quote the client's values.
        raise ValueError(str(error)) from rejected_fields(fields)
    if for_client and str(error) == f"Unknown prompt: {name}":
        # The dispatcher would log the name, with a traceback.
        log_unknown("Prompt")
        raise MCPError(code=INVALID_PARAMS, message=str(error)) from None
    raise error


def log_unknown(kind: str) -> None:
    """Log that a client requested an unknown item, without its name, which may be any text of any length."""
    logger.info("%s %r failed: not found", kind, "(unknown)")


def resource_failure(uri: str, registered: str | None, error: ResourceError) -> MCPError:
    """Log and return a failure to read a resource as the SDK's handler does.

    The log has the registered URI or template: the variables of a URI are the client's values.
    """
    code = INVALID_PARAMS if isinstance(error, ResourceNotFoundError) else INTERNAL_ERROR
    label = registered if registered is not None else "(unknown)"
    if isinstance(error, ResourceNotFoundError):
        logger.info("Resource %r failed: not found", label)
    elif not isinstance(error, UnexpectedResourceError):
        logger.info("Resource %r failed: %r", label, str(error))
    elif (fields := fields_rejected_by(error)) is not None:
        logger.info("Resource %r rejected variables: %r", label, fields)
    else:
        # Log the cause alone: the errors around it quote the URI.
        cause: BaseException = error
        while isinstance(cause, UnexpectedResourceError) and cause.__cause__ is not None:
            cause = cause.__cause__
        logger.error("Resource %r raised an unexpected exception", label, exc_info=cause)
    return MCPError(code=code, message=str(error), data={"uri": uri})


def _sendable(text: str) -> str:
    """Return a text without lone surrogates, which no transport carries."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def cannot_ask(error: errors.CannotAsk) -> MCPError:
    """Return the protocol error for a client that cannot be asked (S6)."""
    if isinstance(error, errors.UrlRequired):
        return UrlElicitationRequiredError([error.request])
    if not isinstance(error, errors.CapabilityMissing):
        return MCPError(code=INVALID_REQUEST, message=_with_words(str(error), error))
    data = MissingRequiredClientCapabilityErrorData(required_capabilities=error.required)
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=_with_words(str(error), error),
        data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


def store_down(message: str) -> MCPError:
    """Return the error for a client that may try again later, as for tools that run once and whose ledger is down."""
    return MCPError(code=SERVER_ERROR, message=f"{message}; try again later", data={"reason": "ledger_unavailable"})


def log_tool_failure(name: str, error: Exception) -> None:
    """Log a failed tool as the SDK's handler does."""
    if isinstance(error, registry.UnknownTool):
        log_unknown("Tool")
    elif isinstance(error.__cause__, Crashed):
        logger.info("Tool %r returned the recorded error of its body again", name)
    elif not isinstance(error, ToolError) or isinstance(error, UnexpectedToolError):
        # The cause is the exception in the author's code. The SDK's wrapper around it would repeat the traceback.
        logger.error("Tool %r raised an unexpected exception", name, exc_info=error.__cause__ or error)
    elif isinstance(error.__cause__, ValidationError):
        # Names of fields only: the values are the client's.
        fields = sorted({".".join(str(part) for part in each["loc"]) for each in error.__cause__.errors()})
        logger.info("Tool %r rejected arguments: %r", name, fields)
    else:
        logger.info("Tool %r failed: %r", name, str(error))
