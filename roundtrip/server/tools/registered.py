"""A registered tool: its name and schemas, and the function behind them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import func_metadata
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.tool_name_validation import validate_and_warn_tool_name
from mcp_types import Icon, ToolAnnotations
from mcp_types import Tool as WireTool
from pydantic import PydanticUserError, ValidationError

from roundtrip.errors import InvalidSignature
from roundtrip.graph.signatures import display_name, hints_of
from roundtrip.runtime.leg import Limits
from roundtrip.server.functions import AskingFunction, read_signature
from roundtrip.server.tools.arguments import ArgumentReader
from roundtrip.server.tools.gates import ConfirmationGate
from roundtrip.server.tools.results import Converter, converter_for

__all__ = ["RegisteredTool", "register"]


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """One tool, ready to be listed and called."""

    name: str
    function: AskingFunction
    arguments: ArgumentReader
    convert: Converter
    gate: ConfirmationGate | None
    listing: WireTool

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
    confirm: str | None = None,
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
    signature = read_signature(fn, owner=f"tool {tool_name!r}")
    try:
        metadata = (
            prepared.fn_metadata
            if prepared is not None
            else func_metadata(fn, skip_names=signature.hidden, structured_output=structured_output)
        )
    except PydanticUserError as error:
        raise InvalidSignature(f"tool {tool_name!r}: a parameter has no schema ({error.message})") from error
    schema = metadata.arg_model.model_json_schema(by_alias=True)
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise InvalidSignature(f"Tool {tool_name!r} has an invalid x-mcp-header annotation: {reason}")
    arguments = ArgumentReader(metadata)
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
        function=signature.bind(arguments.names, limits=limits, build=build),
        arguments=arguments,
        convert=converter_for(metadata, hints_of(fn).get("return")),
        gate=ConfirmationGate.of(confirm, tool=tool_name, arguments=arguments.names) if confirm is not None else None,
        listing=listing,
    )
