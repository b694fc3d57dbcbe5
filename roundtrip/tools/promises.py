"""Tool promises: a body that runs exactly once, and a call that runs as a task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from roundtrip.errors import InvalidSignature
from roundtrip.legs.functions import AskingFunction, FunctionSignature
from roundtrip.legs.parts import Parts
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import hints_of, returns_input_required
from roundtrip.tools.options import After, OnUnknown, ToolSpec, Uncovered, seconds_of

if TYPE_CHECKING:
    from roundtrip.tools import intents

load_on_use(globals(), "roundtrip.tools.intents")

logger = logging.getLogger("roundtrip")

_TASK_TTL_SECONDS: Final = 7 * 24 * 3600.0
_MAX_AFTER_SECONDS: Final = 24 * 3600.0
_OF_INTENTS: Final = ("keep", "declined_for", "scope", "on_failure")
"""Options that need `once_per=`."""


class OncePolicy(NamedTuple):
    """Options of a tool whose body runs only once: per call, or per intent."""

    on_unknown: OnUnknown
    uncovered: Uncovered
    """What to do with a call that cannot be identified."""
    intent: intents.IntentPolicy | None = None
    """How calls are identified; None if the body runs once per call."""

    @classmethod
    def of(cls, spec: ToolSpec, signature: FunctionSignature, arguments: Mapping[str, str]) -> OncePolicy | None:
        """Return the policy from a tool's options; None if the body may run again.

        Raises:
            InvalidSignature: An option has an invalid value.
        """
        owner, once, per = signature.owner, spec.get("exactly_once"), spec.get("once_per")
        uncovered, on_unknown = spec.get("uncovered"), spec.get("on_unknown")
        if once not in (None, False, True):
            raise InvalidSignature(
                f"{owner}: exactly_once must be True or False, got {once!r}; to run calls that cannot be identified, "
                "add uncovered='run'"
            )
        if uncovered not in (None, *get_args(Uncovered)):
            raise InvalidSignature(f"{owner}: uncovered must be 'round', 'run' or 'reject', got {uncovered!r}")
        if on_unknown not in (None, *get_args(OnUnknown)):
            raise InvalidSignature(f"{owner}: on_unknown must be 'fail' or 'rerun', got {on_unknown!r}")
        if once and per is not None:
            raise InvalidSignature(f"{owner} must not have both exactly_once= and once_per=; leave out exactly_once=")
        if per is None and (alone := [name for name in _OF_INTENTS if spec.get(name) is not None]):
            raise InvalidSignature(f"{owner}: {alone[0]} must be given together with once_per=")
        if not once and per is None:
            for name in ("on_unknown", "uncovered"):
                if spec.get(name) is not None:
                    raise InvalidSignature(
                        f"{owner}: {name} must be given together with exactly_once=True or once_per=; add one of them, "
                        f"or leave {name} out"
                    )
            return None
        if per is None:
            if uncovered is None and _asks_nothing(spec, signature):
                raise InvalidSignature(
                    f"{owner} asks nothing, so exactly_once=True would need a round without questions to identify its "
                    "calls, and some clients reject such rounds; name what identifies a call (once_per='{order_id}'), "
                    "let the user confirm (confirm='...'), or choose: uncovered='run' sends no such round and does not "
                    "cover these calls, uncovered='round' sends it"
                )
            return cls(on_unknown or "fail", uncovered or "round")
        if uncovered == "round":
            raise InvalidSignature(
                f"{owner}: uncovered='round' is for exactly_once=True; with once_per=, write 'reject' or 'run'"
            )
        return cls(on_unknown or "fail", uncovered or "reject", intents.IntentPolicy.of(spec, signature, arguments))


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
        ttl = seconds_of(spec, "task_ttl", _TASK_TTL_SECONDS, f"tool {tool!r}")
        if not given:
            if "task_ttl" in spec:
                raise InvalidSignature(
                    f"tool {tool!r}: task_ttl= must be given together with task=; add task=True, or leave task_ttl out"
                )
            return None
        return cls(given == "required", ttl, given.seconds if isinstance(given, After) else None)


def _asks_nothing(spec: ToolSpec, signature: FunctionSignature) -> bool:
    """Return True if no call of a tool can ask."""
    asks = signature.resolved or signature.contexts or signature.foreign or spec.get("confirm") or spec.get("consent")
    # A function without a return annotation may ask by hand.
    return not asks and "return" in hints_of(signature.fn) and not returns_input_required(signature.fn)


def warn_of_promise(function: AskingFunction, parts: Parts, promise: str) -> None:
    """Log a warning if the server may be unable to keep a tool's promise."""
    if parts.may_forget:
        logger.warning(
            "%s %s, but other processes with the same keys may serve its calls; give all processes one ledger= "
            "(SqliteLedger, RedisLedger or PostgresLedger), or ledger=MemoryLedger() if there is only one process",
            function.owner,
            promise,
        )
