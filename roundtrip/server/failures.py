"""How a leg's failures look to the client: one mapping for tools, one for prompts and resource templates."""

from collections.abc import Awaitable
from typing import TypeVar

from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    MissingRequiredClientCapabilityErrorData,
)

from roundtrip.errors import CannotAsk, CapabilityMissing, InvalidSignature, RoundtripError, UrlRequired

__all__ = ["as_prompt", "as_template", "tool_failure"]

T = TypeVar("T")


def tool_failure(name: str, error: Exception) -> Exception:
    """What a failure of a tool's leg is to the SDK's handler: the author's text behind a prefix, or a crash.

    A protocol error stays what it is. Of a crash (`UnexpectedToolError`) the model is told only that there was one.
    """
    if isinstance(error, MCPError):
        return error
    if isinstance(error, CannotAsk):
        return cannot_ask(error)
    if isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return UnexpectedToolError(f"Error executing tool {name}: {error}")
    # A signature that turns out wrong this late is the author's mistake: for the log, not for the model.
    if isinstance(error, ToolError | ResourceError | RoundtripError) and not isinstance(error, InvalidSignature):
        return ToolError(f"Error executing tool {name}: {error}")
    return UnexpectedToolError(f"Error executing tool {name}")


async def as_prompt(name: str, run: Awaitable[T]) -> T:
    """Run a prompt's leg with its anticipated failures as protocol errors; the SDK hides the text of any other.

    Raises:
        MCPError: What roundtrip has to say, or what the author's function raised as one.
        Exception: A crash.
    """
    try:
        return await run
    except CannotAsk as error:
        raise cannot_ask(error) from error
    except InvalidSignature:
        raise
    except RoundtripError as error:
        raise MCPError(code=INTERNAL_ERROR, message=f"Error rendering prompt {name}: {error}") from error


async def as_template(run: Awaitable[T]) -> T:
    """Run a resource template's leg with its anticipated failures as the SDK's handler expects them.

    Raises:
        ResourceError: What roundtrip has to say, or what the author's function raised as one.
        Exception: A crash.
    """
    try:
        return await run
    except CannotAsk as error:
        raise cannot_ask(error) from error
    except InvalidSignature:
        raise
    except RoundtripError as error:
        raise ResourceError(str(error)) from error


def cannot_ask(error: CannotAsk) -> MCPError:
    """The protocol error for a client that cannot be asked (S6)."""
    if isinstance(error, UrlRequired):
        return UrlElicitationRequiredError([error.request])
    if not isinstance(error, CapabilityMissing):
        return MCPError(code=INVALID_REQUEST, message=str(error))
    data = MissingRequiredClientCapabilityErrorData(required_capabilities=error.required)
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=str(error),
        data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )
