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

__all__ = ["as_prompt", "as_template", "as_tool"]

T = TypeVar("T")


async def as_tool(name: str, run: Awaitable[T]) -> T:
    """Run a tool's leg with its failures as the SDK's handler expects them: the author's text behind a prefix.

    Raises:
        ToolError: An anticipated failure, to be shown to the model.
        UnexpectedToolError: A crash, of which the model is told only that there was one.
        MCPError: A protocol error, passed through, or one that says that the client cannot be asked.
    """
    try:
        return await run
    except MCPError:
        raise
    except CannotAsk as error:
        raise cannot_ask(error) from error
    except (UnexpectedToolError, UnexpectedResourceError) as error:
        raise UnexpectedToolError(f"Error executing tool {name}: {error}") from error
    except InvalidSignature as error:
        # The author's mistake, found too late for registration: for the log, not for the model.
        raise UnexpectedToolError(f"Error executing tool {name}") from error
    except (ToolError, ResourceError, RoundtripError) as error:
        raise ToolError(f"Error executing tool {name}: {error}") from error
    except Exception as error:
        raise UnexpectedToolError(f"Error executing tool {name}") from error


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
