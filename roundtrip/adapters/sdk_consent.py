"""Consent for the plain tools of an `MCPServer`: a tool asks, and then the SDK's own tool object runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp.shared.inbound import x_mcp_header_map
from mcp_types import InputResponseRequestParams
from mcp_types import Tool as WireTool
from pydantic import ValidationError
from typing_extensions import override

from roundtrip.adapters.installation import Installation
from roundtrip.legs.functions import AskingFunction, read_signature
from roundtrip.resolvers.threads import Threads
from roundtrip.tools.arguments import ArgumentReader, ArgumentsRejected, mistakes_in
from roundtrip.tools.confirmation import ToolConfirmation
from roundtrip.tools.options import ToolSpec
from roundtrip.tools.registered import RegisteredTool, asking_function
from roundtrip.visibility.rules import Component


def listing_of(tool: SdkTool) -> WireTool:
    """Return a tool as the SDK lists it."""
    return WireTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=tool.output_schema,
        annotations=tool.annotations,
        icons=tool.icons,
        _meta=tool.meta,
    )


def consenting(tool: SdkTool, installation: Installation[Any]) -> RegisteredTool:
    """Return a tool that asks for consent, and then runs the given tool."""
    signature = read_signature(_run_tool, kind="tool", name=tool.name)
    function = asking_function(signature, ToolSpec(), {}, defaults=installation.defaults, kind=_SdkToolFunction)
    function.tool_to_run, function.installation = tool, installation
    function.confirm = ToolConfirmation.for_consent(tool.name).with_defaults_of(tool.parameters)
    listing = listing_of(tool)
    return RegisteredTool(
        component=Component(kind="tool", name=tool.name),
        spec=ToolSpec(consent=True),
        function=function,
        arguments=_RawArguments(tool),
        visibility_gate=None,
        listing=listing,
        names_headers=bool(x_mcp_header_map(listing.input_schema)),
    )


async def _run_tool(ctx: SdkContext[Any, Any]) -> None:
    del ctx


class _SdkToolFunction(AskingFunction):
    """Function that runs a tool object of the SDK."""

    tool_to_run: SdkTool
    installation: Installation[Any]

    @override
    async def run(self, arguments: Mapping[str, Any], filled: Mapping[str, Any], context: Any, threads: Threads) -> Any:
        try:
            return await self.tool_to_run.run(dict(arguments), self._sdk_context(context), convert_result=True)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            # The SDK's text has a prefix that is added again later.
            text = str(error).removeprefix(f"Error executing tool {self.name}: ")
            if isinstance(error.__cause__, ValidationError):
                raise _rejection(self.tool_to_run, error.__cause__, text) from None
            raise ToolError(text) from error.__cause__

    def _sdk_context(self, context: SdkContext[Any, Any]) -> SdkContext[Any, Any]:
        """Return the SDK's own context, whose methods work as without roundtrip."""
        answers, state = context.input_responses, context.request_state
        params = None
        if answers is not None or state is not None:
            params = InputResponseRequestParams.model_construct(input_responses=answers, request_state=state)
        return SdkContext(
            request_context=context.request_context,
            mcp_server=self.installation.host,
            input_params=params,
            subscriptions=self.installation.parts.effects.bus,
        )


class _RawArguments(ArgumentReader):
    """Reader that checks a client's arguments as the SDK does, and returns them without those that the SDK drops."""

    def __init__(self, tool: SdkTool) -> None:
        super().__init__(tool.fn_metadata)
        # A subclass may take other arguments than its function.
        self._tool = tool if type(tool).run is SdkTool.run else None
        model = tool.fn_metadata.arg_model
        names = [info.validation_alias or name for name, info in model.model_fields.items()]
        self._names = {name for name in names if isinstance(name, str)}
        # The author may have made a model that takes more arguments, or takes them in other ways.
        is_usual = self._tool is not None and model.model_config == ArgModelBase.model_config
        self._drops_others = is_usual and len(self._names) == len(names)

    __slots__ = ("_drops_others", "_names", "_tool")

    @override
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._tool is not None:
            try:
                self._tool.fn_metadata.validate_arguments(dict(arguments))
            except ValidationError as error:
                raise _rejection(self._tool, error, mistakes_in(error)) from None
        return {name: value for name, value in arguments.items() if not self._drops_others or name in self._names}


def _rejection(tool: SdkTool, error: ValidationError, text: str) -> ArgumentsRejected:
    """Return the error for arguments that do not match a tool's schema."""
    places = [each["loc"][0] for each in error.errors(include_input=False, include_url=False) if each["loc"]]
    return ArgumentsRejected(text, places=places, names=tool.fn_metadata.arg_model.model_fields)
