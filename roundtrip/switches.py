"""Read the switches of a server: an argument, or else a variable of the environment."""

from collections.abc import Mapping
from typing import Final, Literal

FAST_LANE_VARIABLE: Final = "ROUNDTRIP_FAST_LANE"
PROBE_VARIABLE: Final = "ROUNDTRIP_PROBE"
PROBE_TOOL: Final = "roundtrip_probe"
"""The tool that answers `roundtrip doctor`, if it is switched on."""
RUN_TASKS_VARIABLE: Final = "ROUNDTRIP_RUN_TASKS"
OWN: Final = "own"
"""The tasks that clients of this process have made or asked for, and no others."""

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def is_on(given: object, variable: str, *, environment: Mapping[str, str], default: bool) -> bool:
    """Return True if something is switched on.

    Args:
        given: The argument; None if the author gave none.
        variable: The name of the variable: that of the argument in capitals, after `ROUNDTRIP_`.
        environment: The variables.
        default: The choice if neither says anything.

    Raises:
        TypeError: The argument is neither True nor False.
        ValueError: The variable is neither on nor off.
    """
    if isinstance(given, bool):
        return given
    if given is not None:
        argument = variable.removeprefix("ROUNDTRIP_").lower()
        raise TypeError(f"{argument}= must be True or False, got {given!r}")
    if variable not in environment:
        return default
    said = environment[variable].strip().lower()
    if said not in _ON | _OFF:
        raise ValueError(f"{variable} must be 1 or 0, got {said!r}")
    return said in _ON


def runs_tasks(given: object, *, environment: Mapping[str, str]) -> bool | Literal["own"]:
    """Return which tasks a process runs, by the argument `run_tasks=`, else by its variable: all, none, or its own.

    Raises:
        TypeError: The argument is none of the choices.
        ValueError: The variable is none of them.
    """
    said = environment.get(RUN_TASKS_VARIABLE, "").strip().lower() if given is None else given
    if said == OWN:
        return OWN
    try:
        return is_on(given, RUN_TASKS_VARIABLE, environment=environment, default=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}; or {OWN!r}, for the tasks of this process's clients") from None
