"""Tool promises: a body that runs exactly once, and a call that runs as a task."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple, get_args

from roundtrip.errors import InvalidSignature
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.parts import Parts
from roundtrip.tools.options import After, OnUnknown, ToolSpec

logger = logging.getLogger("roundtrip")

_TASK_TTL_SECONDS: Final = 7 * 24 * 3600.0
_MAX_TASK_TTL_SECONDS: Final = 366 * 24 * 3600.0
_MAX_AFTER_SECONDS: Final = 24 * 3600.0


class OncePolicy(NamedTuple):
    """Options of a tool whose body runs only once per call."""

    on_unknown: OnUnknown
    when_possible: bool
    """If a call has no token: True to run the body immediately, False to send a round without questions first."""

    @classmethod
    def of(cls, spec: ToolSpec, *, tool: str) -> OncePolicy | None:
        """Return the policy from a tool's options; None if the body may run again.

        Raises:
            InvalidSignature: An option has an invalid value.
        """
        once, on_unknown = spec.get("exactly_once"), spec.get("on_unknown")
        if once not in (None, False, True, "when_possible"):
            raise InvalidSignature(f"tool {tool!r}: exactly_once must be True, False or 'when_possible', got {once!r}")
        if on_unknown not in (None, *get_args(OnUnknown)):
            raise InvalidSignature(f"tool {tool!r}: on_unknown must be 'fail' or 'rerun', got {on_unknown!r}")
        if on_unknown is not None and not once:
            raise InvalidSignature(
                f"tool {tool!r}: on_unknown must be given together with exactly_once=True; add exactly_once=True, or "
                "leave on_unknown out"
            )
        return cls(on_unknown or "fail", once == "when_possible") if once else None


def after(seconds: float) -> After:
    """Return a value for `task=` that turns a call into a task if its body runs longer than `seconds`.

    If the body sleeps, or waits for an answer or a signal, the call becomes a task immediately. Clients that do not
    support tasks get a normal call.

    Raises:
        ValueError: The number of seconds is not between 0 and one day.
    """
    given: Any = seconds
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < seconds <= _MAX_AFTER_SECONDS:
        raise ValueError(f"after(seconds) must be more than 0 and at most a day, got {seconds!r}")
    return After(float(seconds))


class TaskMode(NamedTuple):
    """Options of a tool that runs as a task."""

    is_required: bool
    ttl: float
    after: float | None = None
    """Seconds that the request waits for the body; None if the call becomes a task before its body starts."""

    @classmethod
    def of(cls, spec: ToolSpec, *, tool: str) -> TaskMode | None:
        """Return the task mode from a tool's options; None if the tool never runs as a task.

        Raises:
            InvalidSignature: An option is invalid.
        """
        given = spec.get("task")
        if not isinstance(given, After) and given not in (None, False, True, "required"):
            raise InvalidSignature(
                f"tool {tool!r}: task must be True, False, 'required' or after(seconds), got {given!r}"
            )
        if given not in (None, False, "required") and spec.get("exactly_once"):
            raise InvalidSignature(
                f"tool {tool!r}: exactly_once= needs task='required', got task={given!r}: a repeated request could run "
                "the body once as a task and once as a normal call"
            )
        ttl: Any = spec.get("task_ttl", _TASK_TTL_SECONDS)
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= _MAX_TASK_TTL_SECONDS:
            raise InvalidSignature(
                f"tool {tool!r}: task_ttl must be a number of seconds, more than 0 and at most a year, got {ttl!r}"
            )
        if not given:
            if "task_ttl" in spec:
                raise InvalidSignature(
                    f"tool {tool!r}: task_ttl= must be given together with task=; add task=True, or leave task_ttl out"
                )
            return None
        return cls(given == "required", float(ttl), given.seconds if isinstance(given, After) else None)


def warn_of_promise(function: AskingFunction, parts: Parts, promise: str) -> None:
    """Log a warning if the server may be unable to keep a tool's promise."""
    if parts.may_forget:
        logger.warning(
            "%s %s, but other processes with the same keys may serve its calls; give all processes one ledger= "
            "(SqliteLedger, RedisLedger or PostgresLedger), or ledger=MemoryLedger() if there is only one process",
            function.owner,
            promise,
        )
