"""Prompts and resource templates that ask: a function without its hidden parameters, for the SDK to register."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver import Context as SdkContext

from roundtrip.resolvers.signatures import hints_of
from roundtrip.server.functions import FunctionSignature

__all__ = ["hide_parameters"]

_CONTEXT = "roundtrip_context"

Serve = Callable[[dict[str, Any], SdkContext[Any, Any]], Awaitable[Any]]
"""Serves one leg, given the client's arguments and the request's context."""


def hide_parameters(signature: FunctionSignature, serve: Serve) -> Callable[..., Awaitable[Any]]:
    """A function with only the client's parameters (and one for the context), which serves a leg when called.

    The SDK reads argument lists and URI variables off it as off any other function.
    """
    fn = signature.fn
    original = inspect.signature(fn)
    hints = hints_of(fn)
    visible = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in original.parameters.items()
        if name not in signature.hidden
    ]

    async def wrapper(**arguments: Any) -> Any:
        context = arguments.pop(_CONTEXT)
        return await serve(arguments, context)

    context = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=SdkContext)
    wrapper.__name__ = getattr(fn, "__name__", type(fn).__name__)
    wrapper.__qualname__ = wrapper.__name__
    wrapper.__doc__ = fn.__doc__
    wrapper.__module__ = getattr(fn, "__module__", wrapper.__module__)
    # The SDK calls prompts and templates by keyword, so the order and kind of parameters is free.
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in visible]
    wrapper.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined]
    annotations = {parameter.name: parameter.annotation for parameter in [*parameters, context]}
    wrapper.__annotations__ = {name: hint for name, hint in annotations.items() if hint is not inspect.Parameter.empty}
    return wrapper
