"""Question outcomes: `Outcome` internally, and the SDK's classes for consumers that ask for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from mcp.server.elicitation import CancelledElicitation, DeclinedElicitation

from roundtrip.errors import QuestionDeclined
from roundtrip.machine.journal import Action

if TYPE_CHECKING:
    from mcp.server.elicitation import AcceptedElicitation as SdkAcceptedElicitation

    T = TypeVar("T")

    # The SDK's class is generic only over models. Here an answer may also be a bool or a choice.
    class AcceptedElicitation(SdkAcceptedElicitation[Any], Generic[T]):
        """The user accepted; `data` is the answer."""

        data: T

    ElicitationResult: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
else:
    from mcp.server.elicitation import AcceptedElicitation, ElicitationResult

__all__ = ["AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation", "ElicitationResult", "Outcome"]


# Not frozen, because freezing makes creation three times as slow, for each question and leg. Nothing changes it.
@dataclass(slots=True, repr=False)
class Outcome:
    """Outcome of one question or node: a value, or what the user did instead of answering."""

    value: Any = None
    action: Action = Action.ACCEPT

    def require_value(self, key: str) -> Any:
        """Return the answer's value.

        Raises:
            QuestionDeclined: The user declined or cancelled.
        """
        if self.action is not Action.ACCEPT:
            raise QuestionDeclined(key, self.action.word)
        return self.value

    def as_result(self) -> "ElicitationResult[Any]":
        """Return an instance of the SDK's outcome class, for a consumer that branches on it."""
        if self.action is Action.ACCEPT:
            # The value is already validated, and need not be a model at all.
            return AcceptedElicitation[Any].model_construct(data=self.value)
        return DeclinedElicitation() if self.action is Action.DECLINE else CancelledElicitation()
