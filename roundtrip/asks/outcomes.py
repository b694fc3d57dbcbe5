"""The three ways a question can end, inside (`Outcome`) and as the SDK's classes for who asked to see them."""

from dataclasses import dataclass
from typing import Any

from mcp.server.elicitation import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    ElicitationResult,
)

from roundtrip.machine.journal import Action

__all__ = [
    "AcceptedElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "Outcome",
]

_WORDS = {Action.ACCEPT: "accept", Action.DECLINE: "decline", Action.CANCEL: "cancel"}


# Not frozen, as that makes it three times as slow to make, for each question and leg; nothing changes one all the same.
@dataclass(slots=True)
class Outcome:
    """How one node of the graph ended: with a value, or with a user who did not want to answer."""

    value: Any = None
    action: Action = Action.ACCEPT

    @property
    def word(self) -> str:
        """The protocol's word for the action."""
        return _WORDS[self.action]

    def as_result(self) -> AcceptedElicitation[Any] | DeclinedElicitation | CancelledElicitation:
        """The SDK's outcome class, for a consumer that branches on it."""
        if self.action is Action.ACCEPT:
            # The value is validated already, and need not be a model at all.
            return AcceptedElicitation[Any].model_construct(data=self.value)
        return DeclinedElicitation() if self.action is Action.DECLINE else CancelledElicitation()
