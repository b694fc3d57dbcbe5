"""Functions whose signatures are known only at run time, as if they had been written out."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def declared(function: Callable[..., Any], *, in_threads: bool) -> Callable[..., Any]:
    """Return a plain function as it is, or as an `async def`."""
    if in_threads:
        return function

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return awaited


def spelled(
    function: _F, *, name: str, parameters: Mapping[str, Any], returns: Any, defaults: Mapping[str, Any] | None = None
) -> _F:
    """Rename a `**keywords` function and declare its parameters.

    A tool with sixteen resolver parameters would be sixteen lines of boilerplate. Every framework here reads signatures
    with `inspect.signature` and `typing.get_type_hints`. Both return the same as for a `def` with these parameters.
    """
    given = defaults or {}
    signature = Signature(
        [
            Parameter(
                key, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=given.get(key, Parameter.empty)
            )
            for key, annotation in parameters.items()
        ],
        return_annotation=returns,
    )
    function.__name__ = function.__qualname__ = name
    # The SDK writes the module's name into the keys in its tokens. A short name does not overstate their size.
    function.__module__ = "app"
    function.__annotations__ = {**parameters, "return": returns}
    vars(function)["__signature__"] = signature
    return function
