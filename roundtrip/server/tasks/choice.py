"""Read which tasks of its store a process runs."""

from collections.abc import Mapping
from typing import Final, Literal

from roundtrip.server.switches import RUN_TASKS_VARIABLE, is_on

__all__ = ["OWN", "runs_tasks"]

OWN: Final = "own"
"""The tasks that clients of this process have made or asked for, and no others."""


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
