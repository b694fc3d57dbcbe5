"""Docket dependencies: which of them roundtrip supports as parameters, and what authors can write in place of the
others.

They are recognized by their class names. So Docket and FastMCP are not imported, and need not be installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.errors import InvalidSignature
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import given_by_partials

if TYPE_CHECKING:
    from roundtrip.docket import dependencies
    from roundtrip.legs.extensions import LegExtension
    from roundtrip.legs.functions import FunctionSignature

load_on_use(globals(), "roundtrip.docket.dependencies")

_PACKAGES: Final = ("docket", "uncalled_for")
_FILLED: Final = frozenset(("Timeout", "Retry", "ExponentialRetry", "Progress", "TaskKey", "TaskLogger"))
_NOT_DOCKETS: Final = "Docket only delivers the call and does not run it; use ctx.call and ctx.task of a Context"
_NO_LIMIT: Final = "Docket does not see the arguments; limit a worker's legs with --concurrency"
_NO_SCHEDULE: Final = "a call runs only once; to repeat it, call the tool from a scheduler"
_CURES: Final = {
    "CallArgument": "give the parameter the name of the tool's argument",
    "ConcurrencyLimit": _NO_LIMIT,
    "Cooldown": _NO_LIMIT,
    "Cron": _NO_SCHEDULE,
    "CurrentContext": "annotate the parameter with roundtrip's Context",
    "CurrentDocket": _NOT_DOCKETS,
    "CurrentExecution": _NOT_DOCKETS,
    "CurrentWorker": _NOT_DOCKETS,
    "Debounce": _NO_LIMIT,
    "Depends": "import Depends from roundtrip",
    "Logged": "roundtrip does not log arguments; leave it out",
    "Perpetual": _NO_SCHEDULE,
    "RateLimit": _NO_LIMIT,
    "Shared": "yield the value from the server's lifespan",
    "TaskArgument": "give the parameter the name of the tool's argument",
}


def filled(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's supported Docket dependencies, keyed by parameter name."""
    given = given_by_partials(fn)
    parameters = inspect.signature(fn).parameters.values()
    return {each.name: each.default for each in parameters if each.name not in given and _is_filled(each.default)}


def fill(signature: FunctionSignature, policies: Mapping[type, object]) -> LegExtension:
    """Return the leg extension that fills a tool's parameters."""
    return dependencies.DocketParameters(signature, policies)


def reject(given: Any, subject: str) -> None:
    """Reject a Docket or FastMCP dependency, or its class, where roundtrip does not support it.

    Raises:
        InvalidSignature: The value is a Docket or FastMCP dependency, or the class of one.
    """
    kind = cast("type[Any]", given if isinstance(given, type) else type(given))
    if not any(base.__module__.partition(".")[0] in _PACKAGES for base in kind.__mro__):
        return
    name = _name_of(kind)
    is_of_fastmcp = kind.__module__.startswith("fastmcp.")
    cure = _CURES.get(name, "leave it out")
    if name == "Progress" and is_of_fastmcp:
        cure = "import Progress from docket"
    elif name in _FILLED:
        cure = f"use it only as the default of the tool's own parameter: {name.lower()}: {name} = {name}(...)"
    raise InvalidSignature(
        f"{subject} must not have a {'FastMCP' if is_of_fastmcp else 'Docket'} dependency, got {name}(...), which "
        f"roundtrip cannot fill here; {cure}"
    )


def _is_filled(default: Any) -> bool:
    # A default that is the bare class (without parentheses), or an instance of an author's own subclass, is not filled.
    kind = cast("type[Any]", type(default))
    return kind.__module__.partition(".")[0] == "docket" and _name_of(kind) in _FILLED


def _name_of(kind: type[Any]) -> str:
    return kind.__name__.lstrip("_")
