"""`LegDelivery`, which pairs a leg with its response, and the errors that networks raise."""

from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, InputRequiredResult

from roundtrip.client.legs import FinalResult, LegRequest, LegResult
from roundtrip.machine.call import Transition
from roundtrip.testing.question_pages import waiting_call

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True


class Breach(AssertionError):
    """The server broke a rule that every server must obey on every network."""


class Inapplicable(Exception):
    """The network does not work with this user or server. The message says what is missing."""


@dataclass(slots=True, eq=False)
class LegDelivery:
    """A leg that was sent to a server, with the server's response."""

    leg: LegRequest
    result: LegResult | None = None
    error: MCPError | None = None
    """The response, if it is a protocol error."""
    transitions: list[Transition] | None = None
    """The call's transitions during the leg; None if the server does not report facts to this process."""
    bodies: int = 0
    """The number of function bodies that started during the leg, if the server reports facts."""
    crash: BaseException | None = None
    """The unexpected exception that ended the leg, if the server reports facts."""
    computed: list[Any] = field(default_factory=list[Any])
    """Computed values that must not be readable in the token, if the server reports facts."""
    call_id: str = ""
    """The call's id, if the server reports facts."""
    has_intent: bool = False
    """True if the tool has `once_per=`, and the server reports facts."""
    task_id: str | None = None
    """The id of the call's task. The task may have begun with this leg."""

    @property
    def asks(self) -> InputRequiredResult | None:
        """Return the response if it asks questions; otherwise return None."""
        return self.result if isinstance(self.result, InputRequiredResult) else None

    @property
    def names(self) -> set[str]:
        """Return the names of the questions in the response."""
        return set(self.asks.input_requests or {}) if self.asks is not None else set()

    @property
    def final(self) -> FinalResult | None:
        """Return the call's result; None if the leg did not end the call."""
        return None if isinstance(self.result, InputRequiredResult) else self.result

    @property
    def done(self) -> FinalResult | None:
        """Return the call's result if the call succeeded; None if it failed or is still waiting."""
        final = self.final
        if isinstance(final, CallToolResult) and (final.is_error or waiting_call(final) is not None):
            return None
        return final

    @property
    def crashed(self) -> bool:
        """Return True if an unexpected exception in the server ended the leg."""
        if self.crash is not None:
            return True
        if self.error is not None:
            return is_internal(self.leg, self.error)
        if isinstance(self.result, CallToolResult) and self.result.is_error and self.transitions is None:
            return is_bare_failure(self.leg, "\n".join(getattr(block, "text", "") for block in self.result.content))
        return False

    @property
    def is_rejected(self) -> bool:
        """Return True if the server deliberately answered with a protocol error."""
        return self.error is not None and not self.crashed

    @property
    def told(self) -> str:
        """Describe the response in one line."""
        if self.crash is not None:
            return f"the crash {type(self.crash).__name__}: {self.crash}"
        if self.error is not None:
            return f"the error {self.error.code} {self.error.error.message!r}"
        asks = self.asks
        if asks is not None:
            return f"a question ({', '.join(map(repr, asks.input_requests or {})) or 'none: send the leg again'})"
        final = self.final
        if isinstance(final, CallToolResult):
            text = " ".join(getattr(block, "text", f"({block.type})") for block in final.content)
            return f"the {'failure' if final.is_error else 'result'} {text!r}"
        return f"the result {final!r}"


def is_internal(leg: LegRequest, error: MCPError) -> bool:
    """Return True if the server sent a protocol error because of an unexpected exception."""
    # For prompts and resources, servers also use this code for deliberate errors.
    return error.code == INTERNAL_ERROR and leg.method == "tools/call"


def is_bare_failure(leg: LegRequest, text: str) -> bool:
    """Return True if a failure has the text that SDK servers use only for unexpected exceptions."""
    return text == f"Error executing tool {leg.name}"
