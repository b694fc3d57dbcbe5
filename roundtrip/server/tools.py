"""A registered tool: its function, its schemas, its plan, and how one call of it runs."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.tool_name_validation import validate_and_warn_tool_name
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    Icon,
    InputRequiredResult,
    MissingRequiredClientCapabilityErrorData,
    ToolAnnotations,
)
from mcp_types import Tool as WireTool
from pydantic import ValidationError

from roundtrip.errors import CapabilityMissing, ChannelMissing, InvalidSignature, RoundtripError
from roundtrip.graph.plan import EMPTY, Plan, find_resolved, make_plan
from roundtrip.graph.signatures import arms_of, display_name, hints_of, is_async, returns_input_required
from roundtrip.runtime.leg import Limits
from roundtrip.server.arguments import ArgumentReader
from roundtrip.server.builds import build_of

__all__ = ["RegisteredTool", "guard", "register"]

T = TypeVar("T")

_NO_CHANNEL = -32600
_WAITING_THREADS = 128


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """One tool, ready to be listed and called."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    context_parameters: tuple[str, ...]
    arguments: ArgumentReader
    metadata: FuncMetadata
    plan: Plan
    limits: Limits
    threads: anyio.CapacityLimiter
    """For a plain body that may wait for a person in its thread: those of the event loop are too few."""
    build: str
    listing: WireTool

    @property
    def wants_context(self) -> bool:
        """Whether its function or one of its resolvers takes the context."""
        return bool(self.context_parameters) or self.plan.takes_context

    @property
    def authors_questions(self) -> bool:
        """Whether its body says that it asks by hand."""
        return returns_input_required(self.fn)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The client's arguments as the body receives them.

        Raises:
            ToolError: They do not fit the input schema.
        """
        try:
            return self.arguments.read(arguments)
        except ValidationError as error:
            # The client's mistake. A ValidationError from anywhere else in a leg is the author's, and a crash.
            raise ToolError(str(error)) from error

    async def execute(self, arguments: dict[str, Any], filled: dict[str, Any], context: Context[Any, Any]) -> Any:
        """Run the body and convert what it returns; an `InputRequiredResult` is passed on as it is."""
        passed: dict[str, Any] = {**filled, **dict.fromkeys(self.context_parameters, context)}
        call = functools.partial(self.fn, **arguments, **passed)
        if self.is_async:
            result = await call()
        else:
            result = await anyio.to_thread.run_sync(call, limiter=self.threads if self.context_parameters else None)
        if isinstance(result, InputRequiredResult):
            if self.plan.nodes:
                raise InvalidSignature(
                    "the body returned an InputRequiredResult, but parameters of the tool are filled by Resolve(...): "
                    "the questions of a call are asked by one of the two, not by both"
                )
            return result
        return self.metadata.convert_result(result)


def register(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: ToolAnnotations | None = None,
    icons: list[Icon] | None = None,
    meta: dict[str, Any] | None = None,
    structured_output: bool | None = None,
    limits: Limits,
    build: str | None = None,
    prepared: SdkTool | None = None,
) -> RegisteredTool:
    """Make a tool of a function, and refuse what could never work.

    Args:
        prepared: The SDK's own tool object, whose metadata and schemas are kept.

    Raises:
        InvalidSignature: A parameter cannot be classified, or a graph of resolvers cannot work.
        ValueError: The tool has no usable name.
    """
    tool_name = name or display_name(fn)
    validate_and_warn_tool_name(tool_name)
    if tool_name == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    hints = hints_of(fn)
    contexts = tuple(parameter for parameter, hint in hints.items() if parameter != "return" and _is_context(hint))
    resolved = find_resolved(fn, tool=tool_name)
    if resolved and returns_input_required(fn):
        raise InvalidSignature(
            f"tool {tool_name!r} fills parameters with Resolve(...) and returns an InputRequiredResult: the questions "
            "of a call are asked by one of the two, not by both"
        )
    metadata = (
        prepared.fn_metadata
        if prepared is not None
        else func_metadata(fn, skip_names=[*contexts, *resolved], structured_output=structured_output)
    )
    schema = metadata.arg_model.model_json_schema(by_alias=True)
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise InvalidSignature(f"Tool {tool_name!r} has an invalid x-mcp-header annotation: {reason}")
    arguments = ArgumentReader(metadata)
    plan = EMPTY
    if resolved:
        plan = make_plan(fn, owner=tool_name, arguments=arguments.names, context_types=(Context,), resolved=resolved)
    listing = WireTool(
        name=tool_name,
        title=title,
        description=description or fn.__doc__ or "",
        input_schema=schema,
        output_schema=metadata.output_schema,
        annotations=annotations,
        icons=icons,
        _meta=meta,
    )
    return RegisteredTool(
        name=tool_name,
        fn=fn,
        is_async=is_async(fn),
        context_parameters=contexts,
        arguments=arguments,
        metadata=metadata,
        plan=plan,
        limits=limits,
        threads=anyio.CapacityLimiter(_WAITING_THREADS),
        build=build if build is not None else build_of([fn, *(node.fn for node in plan.nodes)]),
        listing=listing,
    )


async def guard(name: str, run: Awaitable[T]) -> T:
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
    except CapabilityMissing as error:
        data = MissingRequiredClientCapabilityErrorData(required_capabilities=error.required)
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=str(error),
            data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
        ) from error
    except ChannelMissing as error:
        raise MCPError(code=_NO_CHANNEL, message=str(error)) from error
    except (UnexpectedToolError, UnexpectedResourceError) as error:
        raise UnexpectedToolError(f"Error executing tool {name}: {error}") from error
    except InvalidSignature as error:
        # The author's mistake, found too late for registration: for the log, not for the model.
        raise UnexpectedToolError(f"Error executing tool {name}") from error
    except (ToolError, ResourceError, RoundtripError) as error:
        raise ToolError(f"Error executing tool {name}: {error}") from error
    except Exception as error:
        raise UnexpectedToolError(f"Error executing tool {name}") from error


def _is_context(hint: Any) -> bool:
    return any(isinstance(arm, type) and issubclass(arm, Context) for arm in arms_of(hint))
