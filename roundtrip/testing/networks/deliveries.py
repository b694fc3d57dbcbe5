"""The delivery of a leg: its response, and the facts that the server reported."""

from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult

from roundtrip.client.legs import FinalResult, LegRequest, LegResult
from roundtrip.machine.call import Transition

__all__ = ["Breach", "Inapplicable", "LegDelivery", "is_bare_failure", "is_internal"]


class Breach(AssertionError):
    """A rule that a server broke, and must keep on any network."""


class Inapplicable(Exception):
    """A network that does not fit the user or its server; the text names the missing part."""


@dataclass(slots=True, eq=False)
class LegDelivery:
    """A leg that reached a server, and the response."""

    leg: LegRequest
    result: LegResult | None = None
    error: MCPError | None = None
    """The protocol error of the response, if it is one."""
    steps: list[Transition] | None = None
    """The call's transitions during the leg; None if the server does not report facts, as other servers do not."""
    bodies: int = 0
    """The number of started bodies, if the server reports facts."""
    crash: BaseException | None = None
    """The unexpected exception that ended the leg, if the server reports facts."""
    computed: list[Any] = field(default_factory=list[Any])
    """Computed values that the token must hide, if the server reports facts."""

    @property
    def asks(self) -> InputRequiredResult | None:
        """The questions of the response; None if it has none."""
        return self.result if isinstance(self.result, InputRequiredResult) else None

    @property
    def final(self) -> FinalResult | None:
        """The result of the call; None if the leg did not end it."""
        return None if isinstance(self.result, InputRequiredResult) else self.result

    @property
    def done(self) -> FinalResult | None:
        """The successful result of the call; None otherwise."""
        final = self.final
        return None if isinstance(final, CallToolResult) and final.is_error else final

    @property
    def crashed(self) -> bool:
        """True if the server ended the leg by accident."""
        if self.crash is not None:
            return True
        if self.error is not None:
            return is_internal(self.leg, self.error)
        if isinstance(self.result, CallToolResult) and self.result.is_error and self.steps is None:
            return is_bare_failure(self.leg, "\n".join(getattr(block, "text", "") for block in self.result.content))
        return False

    @property
    def is_rejected(self) -> bool:
        """True if the server answered with a protocol error on purpose."""
        return self.error is not None and not self.crashed

    @property
    def told(self) -> str:
        """The response in one line."""
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
    """Return True for the protocol error of an unexpected exception."""
    # The deliberate errors of prompts and resources have the same code.
    return error.code == INTERNAL_ERROR and leg.method == "tools/call"


def is_bare_failure(leg: LegRequest, text: str) -> bool:
    """Return True if a failure has the text that the SDK's servers use only for unexpected exceptions."""
    return text == f"Error executing tool {leg.name}"
