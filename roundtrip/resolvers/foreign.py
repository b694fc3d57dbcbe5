"""Decide which dependencies of Docket the server fills, and say what to write in place of the others.

They are known by the names of their classes: Docket and FastMCP need not be installed, and are not imported.
"""

from typing import Any, Final, cast

from roundtrip.errors import InvalidSignature

_FILLED: Final = frozenset(("Timeout", "Retry", "ExponentialRetry", "Progress", "TaskKey", "TaskLogger"))
_NOT_DOCKETS: Final = "Docket only delivers the call, and does not run it; use ctx.call and ctx.task of a Context"
_NO_LIMIT: Final = "Docket sees no arguments; limit the legs of a worker with its --concurrency"
_NO_SCHEDULE: Final = "a call runs once; call the tool from a scheduler instead"
_CURES: Final = {
    "CallArgument": "name the parameter as the argument of the tool",
    "ConcurrencyLimit": _NO_LIMIT,
    "Cooldown": _NO_LIMIT,
    "Cron": _NO_SCHEDULE,
    "CurrentContext": "annotate the parameter with roundtrip's Context",
    "CurrentDocket": _NOT_DOCKETS,
    "CurrentExecution": _NOT_DOCKETS,
    "CurrentWorker": _NOT_DOCKETS,
    "Debounce": _NO_LIMIT,
    "Depends": "import Depends from roundtrip",
    "Logged": "roundtrip logs no arguments; leave it out",
    "Perpetual": _NO_SCHEDULE,
    "RateLimit": _NO_LIMIT,
    "Shared": "yield the value from the lifespan of the server",
    "TaskArgument": "name the parameter as the argument of the tool",
}


def is_filled(default: Any) -> bool:
    """Return True if the server fills a tool's parameter that has this default."""
    # Neither a class without parentheses, nor an author's own subclass.
    kind = cast("type[Any]", type(default))
    return kind.__module__.partition(".")[0] == "docket" and _name_of(kind) in _FILLED


def rejection(given: Any, subject: str) -> InvalidSignature:
    """Return the error for a parameter with a dependency, or a class of dependencies, that is not filled."""
    kind = cast("type[Any]", given if isinstance(given, type) else type(given))
    name = _name_of(kind)
    is_fastmcps = kind.__module__.startswith("fastmcp.")
    cure = _CURES.get(name, "leave it out")
    if name == "Progress" and is_fastmcps:
        cure = "import Progress from docket"
    elif name in _FILLED:
        cure = f"it is filled only as the default of a tool's own parameter: {name.lower()}: {name} = {name}(...)"
    return InvalidSignature(
        f"{subject} must not have a dependency of {'FastMCP' if is_fastmcps else 'Docket'}'s, got {name}(...), which "
        f"roundtrip does not fill here; {cure}"
    )


def _name_of(kind: type[Any]) -> str:
    return kind.__name__.lstrip("_")
