"""Server switches, set by an argument or an environment variable."""

from collections.abc import Mapping
from typing import Final, Literal

FAST_LANE_VARIABLE: Final = "ROUNDTRIP_FAST_LANE"
PROBE_VARIABLE: Final = "ROUNDTRIP_PROBE"
PROBE_TOOL: Final = "roundtrip_probe"
"""Tool that `roundtrip doctor` calls. A switch adds it to a server."""
RUN_TASKS_VARIABLE: Final = "ROUNDTRIP_RUN_TASKS"
OWN: Final = "own"
"""Value with which a process runs only tasks that its own clients have created or asked for."""

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def is_on(given: object, variable: str, *, environment: Mapping[str, str], default: bool) -> bool:
    """Return True if a switch is on.

    Args:
        given: The argument; None if the author did not set it.
        variable: The variable's name: `ROUNDTRIP_` followed by the argument's name in capitals.
        environment: The environment variables.
        default: The result if neither is set.

    Raises:
        TypeError: The argument is neither True nor False.
        ValueError: The variable has an invalid value.
    """
    if isinstance(given, bool):
        return given
    if given is not None:
        argument = variable.removeprefix("ROUNDTRIP_").lower()
        raise TypeError(f"{argument}= must be True or False, got {given!r}")
    if variable not in environment:
        return default
    value = environment[variable].strip().lower()
    if value not in _ON | _OFF:
        raise ValueError(f"{variable} must be 1 or 0, got {value!r}")
    return value in _ON


def runs_tasks(given: object, *, environment: Mapping[str, str]) -> bool | Literal["own"]:
    """Return which tasks a process runs: all, none, or its own. `run_tasks=` overrides the environment variable.

    Raises:
        TypeError: The argument has an invalid value.
        ValueError: The variable has an invalid value.
    """
    value = environment.get(RUN_TASKS_VARIABLE, "").strip().lower() if given is None else given
    if value == OWN:
        return OWN
    try:
        return is_on(given, RUN_TASKS_VARIABLE, environment=environment, default=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}; {OWN!r} runs only the tasks of this process's clients") from None
