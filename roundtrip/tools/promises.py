"""Promises of tools: run exactly once, and survive the process."""

import logging
from typing import NamedTuple, get_args

from roundtrip.errors import InvalidSignature
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.parts import Parts
from roundtrip.tools.options import OnUnknown, ToolSpec

logger = logging.getLogger("roundtrip")


class OncePolicy(NamedTuple):
    """Options of a tool whose body must run once for a call."""

    on_unknown: OnUnknown
    when_possible: bool
    """True to run a call without a token at once, and not after a round without questions."""

    @classmethod
    def of(cls, spec: ToolSpec, *, tool: str) -> "OncePolicy | None":
        """Read the options of a tool; None if its body may run again.

        Raises:
            InvalidSignature: One has no usable value.
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


def warn_of_promise(function: AskingFunction, parts: Parts, promise: str) -> None:
    """Log that a server may be unable to keep what a tool promises."""
    if parts.may_forget:
        logger.warning(
            "%s %s, and other processes may have the keys of its calls; give all of them one ledger= "
            "(SqliteLedger, RedisLedger or PostgresLedger), or ledger=MemoryLedger() if there is only one process",
            function.owner,
            promise,
        )
