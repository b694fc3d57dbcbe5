"""Make prompts and resource templates that ask plain to the SDK's server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context as SdkContext

from roundtrip.legs.functions import AskingFunction, FunctionSignature
from roundtrip.legs.requests import Incoming
from roundtrip.legs.runner import LegRunner, result_of
from roundtrip.server.attach import wrap
from roundtrip.tools.failures import with_failures
from roundtrip.tools.registered import ToolDefaults

if TYPE_CHECKING:
    from roundtrip.visibility.gates import OpenGates


def in_legs(
    signature: FunctionSignature,
    legs: LegRunner,
    *,
    defaults: ToolDefaults,
    inline: bool = False,
    opened: Callable[[], OpenGates | None] = lambda: None,
) -> tuple[AskingFunction, Callable[..., Awaitable[Any]]]:
    """Make a function that may ask, and the function for the SDK that serves one leg of it.

    Args:
        signature: The prompt or template.
        legs: Serves the legs.
        defaults: The options of the server.
        inline: True to run a plain function on the event loop.
        opened: Returns its visibility gate, with the values that it found, if it has one.
    """
    names = [name for name in inspect.signature(signature.fn).parameters if name not in signature.hidden]
    # Resolvers may take its arguments by name.
    arguments = {name: name for name in names}
    function = AskingFunction(signature, arguments, limits=defaults.limits, build=defaults.build, inline=inline)

    async def serve(arguments: dict[str, Any], context: SdkContext[Any, Any]) -> Any:
        run = legs.run(function, arguments, Incoming.by(context), opened())
        return result_of(await with_failures(run, function))

    return function, wrap(signature, serve)
