"""The three ways a question can end, inside (`Outcome`) and as the SDK's classes for who asked to see them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from mcp.server.elicitation import CancelledElicitation, DeclinedElicitation

from roundtrip.errors import QuestionDeclined
from roundtrip.machine.journal import Action

if TYPE_CHECKING:
    from mcp.server.elicitation import AcceptedElicitation as SdkAcceptedElicitation

    T = TypeVar("T")

    # The SDK's class is generic over models alone. Here an answer may be a bool or a choice as well, and what a type
    # checker is told of it should be that.
    class AcceptedElicitation(SdkAcceptedElicitation[Any], Generic[T]):
        """The user accepted; `data` is what they answered."""

        data: T

    ElicitationResult: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
else:
    from mcp.server.elicitation import AcceptedElicitation, ElicitationResult

__all__ = [
    "AcceptedElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "Outcome",
]


# Not frozen, as that makes it three times as slow to make, for each question and leg; nothing changes one all the same.
@dataclass(slots=True)
class Outcome:
    """How one node of the graph ended: with a value, or with a user who did not want to answer."""

    value: Any = None
    action: Action = Action.ACCEPT

    def require_value(self, key: str) -> Any:
        """Return the value of the answer to a question.

        Raises:
            QuestionDeclined: The user declined or cancelled.
        """
        if self.action is not Action.ACCEPT:
            raise QuestionDeclined(key, self.action.word)
        return self.value

    def as_result(self) -> "ElicitationResult[Any]":
        """The SDK's outcome class, for a consumer that branches on it."""
        if self.action is Action.ACCEPT:
            # The value is validated already, and need not be a model at all.
            return AcceptedElicitation[Any].model_construct(data=self.value)
        return DeclinedElicitation() if self.action is Action.DECLINE else CancelledElicitation()
