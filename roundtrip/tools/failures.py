"""Failures of a leg, converted to the errors that clients get: one mapping for tools, one for prompts and templates."""

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

load_on_use(globals(), "roundtrip.tools.registry")

# The SDK's own logger, because these failures are logged with the SDK's messages.
logger = logging.getLogger("mcp.server.mcpserver.server")
_roundtrip_logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_MAX_MESSAGE_CHARS: Final = 80
"""Maximum length of a question's message in an error. Errors show the message if the question has no name."""
SERVER_ERROR: Final = -32000
"""The SDK also uses this code for closed connections, but without a `data.reason`."""

_SERVER_ERRORS: Final = (
    (errors.ToolTimedOut, "tool_timeout", "{tool} {error}"),
    (errors.ThreadsExhausted, "threads_exhausted", "{tool} cannot run: {error}"),
    (errors.StillRunning, "still_running", "{error}"),
    (errors.LedgerUnavailable, "ledger_unavailable", "{error}"),
)
"""Errors that end a call with a protocol error: for each class, the `data.reason` and the message."""


_STORE_DOWN: Final = {"reason": "ledger_unavailable"}


class Crashed(Exception):
    """A body's crash on an earlier leg, which logged it. The message is the original exception's message."""


def tool_failure(name: str, error: Exception, *, mask: bool) -> Exception:
    """Return the exception that the SDK's handler expects when a tool's leg has failed.

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
        # Do not return an UnexpectedToolError: the SDK would log it, but the earlier leg has already logged the
        # traceback.
        return ToolError(prefix if mask else f"{prefix}: {_sendable(str(error))}")
    if isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return UnexpectedToolError(prefix if mask else f"{prefix}: {_sendable(str(error))}")
    # An invalid signature, missing keys, and a value that cannot be sent or stored count as crashes.
    is_expected = isinstance(error, ToolError | ResourceError | errors.RoundtripError)
    if is_expected and not isinstance(
        error, errors.InvalidSignature | errors.KeysMissing | errors.NotSendable | errors.ValueNotStorable
    ):
        return ToolError(f"{prefix}: {_sendable(str(error))}")
    return UnexpectedToolError(prefix if mask else f"{prefix}: {_sendable(str(error) or type(error).__name__)}")


def failed_tool(name: str, error: Exception, *, mask: bool) -> CallToolResult:
    """Return the failure as a result if its text must not be logged. Otherwise, raise the exception from
    `tool_failure`.

    Raises:
        ToolError: The arguments do not match the schema, or the tool failed.
        MCPError: The tool raised a protocol error, or the client cannot be asked.
    """
    failure = tool_failure(name, error, mask=mask)
    if failure is error:
        raise error
    told = told_by(failure, error)
    if told is None:
        # The SDK logs the names of rejected arguments, which it reads from the cause.
        raise failure from (error.fields if isinstance(error, ArgumentsRejected) else error)
    # Return a result, because the SDK would log a raised error's text.
    _roundtrip_logger.info("Tool %r failed: %r", name, str(failure))
    return CallToolResult(content=[TextContent(text=told)], is_error=True)


def told_by(failure: Exception, error: Exception) -> str | None:
    """Return the failure's text, with generated question names replaced by the questions' messages; None if there are
    no such names.

    A question's message may be secret: log the text of `failure`, never the text returned here.
    """
    if not isinstance(failure, ToolError) or not isinstance(error, errors.RoundtripError):
        return None
    text = _with_messages(str(failure), error)
    return text if text != str(failure) else None


def _with_messages(text: str, error: errors.RoundtripError) -> str:
    for name, words in error.words.items():
        shown = words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}..."
        text = text.replace(repr(name), quoted(shown))
    return _sendable(text)


async def with_failures(run: Awaitable[T], function: AskingFunction) -> T:
    """Run a leg of a prompt or template, and raise the exceptions that the SDK's handlers expect.

    Raises:
        MCPError: The client cannot be asked, or a prompt failed. Prompt results cannot carry an error.
        ResourceError: A template failed.
        Exception: An error in the author's code. The SDK hides the error's text from the client.
    """
    try:
        return await run
    except errors.CannotAsk as error:
        raise cannot_ask(error) from error
    except (errors.InvalidSignature, errors.KeysMissing):
        # The author made a mistake that is found only during a call. The SDK logs the error and hides it from the
        # client.
        raise
    except errors.RoundtripError as error:
        if function.kind == "resource":
            raise ResourceError(str(error)) from error
        raise MCPError(code=INTERNAL_ERROR, message=f"Error rendering prompt {function.name}: {error}") from error


def raise_prompt_failure(name: str, error: ValueError, *, for_client: bool) -> Never:
    """Raise a prompt's failure. The SDK's dispatcher logs it with its causes."""
    fields = fields_rejected_by(error)
    if fields is not None:
        # The SDK would chain an exception that quotes the client's values, so replace it with an exception without
        # values.
        raise ValueError(str(error)) from rejected_fields(fields)
    if for_client and str(error) == f"Unknown prompt: {name}":
        # If this error were raised, the dispatcher would log the client's text with a traceback.
        log_unknown("Prompt")
        raise MCPError(code=INVALID_PARAMS, message=str(error)) from None
    raise error


def log_unknown(kind: str) -> None:
    """Log that a client requested an unknown item. The name is left out because a client can send any text."""
    logger.info("%s %r failed: not found", kind, "(unknown)")


def resource_failure(uri: str, registered: str | None, error: ResourceError) -> MCPError:
    """Log a failure to read a resource as the SDK's handler does, and return the error for the client.

    The log names the registered URI or template, because the variables in the requested URI are the client's values.
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
        # Log only the innermost cause: the outer errors quote the URI.
        cause: BaseException = error
        while isinstance(cause, UnexpectedResourceError) and cause.__cause__ is not None:
            cause = cause.__cause__
        logger.error("Resource %r raised an unexpected exception", label, exc_info=cause)
    return MCPError(code=code, message=str(error), data={"uri": uri})


def _sendable(text: str) -> str:
    """Escape unpaired surrogates, which no transport can carry."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def cannot_ask(error: errors.CannotAsk) -> MCPError:
    """Return the protocol error for a client that cannot be asked (S6)."""
    if isinstance(error, errors.UrlRequired):
        return UrlElicitationRequiredError([error.request])
    if not isinstance(error, errors.CapabilityMissing):
        return MCPError(code=INVALID_REQUEST, message=_with_messages(str(error), error))
    data = MissingRequiredClientCapabilityErrorData(required_capabilities=error.required)
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=_with_messages(str(error), error),
        data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


def store_down(message: str) -> MCPError:
    """Return the error for a store that is down, so that the client can try again later. Its reason is the same as for
    a ledger outage.
    """
    return MCPError(code=SERVER_ERROR, message=f"{message}; try again later", data=dict(_STORE_DOWN))


def is_store_down(error: MCPError) -> bool:
    """Return True if `store_down` made this error."""
    return error.error.code == SERVER_ERROR and error.error.data == _STORE_DOWN


def log_tool_failure(name: str, error: Exception) -> None:
    """Log a tool's failure as the SDK's handler does."""
    if isinstance(error, registry.UnknownTool):
        log_unknown("Tool")
    elif isinstance(error.__cause__, Crashed):
        logger.info("Tool %r returned the recorded error from an earlier run", name)
    elif not isinstance(error, ToolError) or isinstance(error, UnexpectedToolError):
        # The cause is the exception in the author's code. The SDK's wrapper around it would repeat the traceback.
        cause = error.__cause__ if isinstance(error, UnexpectedToolError) else None
        logger.error("Tool %r raised an unexpected exception", name, exc_info=cause or error)
    elif isinstance(error.__cause__, ValidationError):
        # Log only field names: the values belong to the client.
        fields = sorted({".".join(str(part) for part in each["loc"]) for each in error.__cause__.errors()})
        logger.info("Tool %r rejected arguments: %r", name, fields)
    else:
        logger.info("Tool %r failed: %r", name, str(error))
