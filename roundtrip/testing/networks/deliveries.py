"""Legs as they were delivered: what came back, and what the server told of it."""

from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult

from roundtrip.client.legs import FinalResult, LegRequest, LegResult
from roundtrip.machine.call import Transition

__all__ = ["Breach", "Inapplicable", "LegDelivery", "is_bare_failure", "is_internal"]


class Breach(AssertionError):
    """A server did what it must not, whatever its network does."""


class Inapplicable(Exception):
    """A network cannot be had with what the user was given; the text says what it would take."""


@dataclass(slots=True, eq=False)
class LegDelivery:
    """One leg that reached a server, and what came back."""

    leg: LegRequest
    result: LegResult | None = None
    error: MCPError | None = None
    """The error of the protocol that it was answered with, if it was."""
    steps: list[Transition] | None = None
    """The states that the server went through for it; None where nobody tells."""
    bodies: int = 0
    """How often its function's body was begun, as far as somebody tells."""
    crash: BaseException | None = None
    """What ended it that nobody foresaw, as far as somebody tells."""
    computed: list[Any] = field(default_factory=list[Any])
    """What the server fixed, and the token must not show, as far as somebody tells."""

    @property
    def asks(self) -> InputRequiredResult | None:
        """Its questions, if it was answered with some."""
        return self.result if isinstance(self.result, InputRequiredResult) else None

    @property
    def final(self) -> FinalResult | None:
        """The result of the call, if it ended it."""
        return None if isinstance(self.result, InputRequiredResult) else self.result

    @property
    def done(self) -> FinalResult | None:
        """The result of the call, if it ended well."""
        final = self.final
        return None if isinstance(final, CallToolResult) and final.is_error else final

    @property
    def crashed(self) -> bool:
        """Whether the server ended it by accident."""
        if self.crash is not None:
            return True
        if self.error is not None:
            return is_internal(self.leg, self.error)
        if isinstance(self.result, CallToolResult) and self.result.is_error and self.steps is None:
            return is_bare_failure(self.leg, "\n".join(getattr(block, "text", "") for block in self.result.content))
        return False

    @property
    def is_refused(self) -> bool:
        """Whether it was answered with an error of the protocol, and in earnest."""
        return self.error is not None and not self.crashed

    @property
    def told(self) -> str:
        """What came back, in a line."""
        if self.crash is not None:
            return f"the crash {type(self.crash).__name__}: {self.crash}"
        if self.error is not None:
            return f"the error {self.error.code} {self.error.error.message!r}"
        asks = self.asks
        if asks is not None:
            return f"a question ({', '.join(map(repr, asks.input_requests or {})) or 'none, to be tried again'})"
        final = self.final
        if isinstance(final, CallToolResult):
            text = " ".join(getattr(block, "text", f"({block.type})") for block in final.content)
            return f"the {'failure' if final.is_error else 'result'} {text!r}"
        return f"the result {final!r}"


def is_internal(leg: LegRequest, error: MCPError) -> bool:
    """Whether an error of the protocol is one that nobody foresaw."""
    # What a prompt or a resource has to say in earnest has no other number.
    return error.code == INTERNAL_ERROR and leg.method == "tools/call"


def is_bare_failure(leg: LegRequest, text: str) -> bool:
    """Whether the text of a failure is what the SDK's servers say of what nobody foresaw, and of nothing else."""
    return text == f"Error executing tool {leg.name}"
