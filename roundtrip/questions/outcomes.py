"""Question outcomes: `Outcome` for internal use, and the SDK's classes for consumers that take them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from mcp.server.elicitation import CancelledElicitation, DeclinedElicitation

from roundtrip.errors import QuestionDeclined
from roundtrip.machine.journal import Action

if TYPE_CHECKING:
    from mcp.server.elicitation import AcceptedElicitation as SdkAcceptedElicitation

    T = TypeVar("T")

    # The SDK's class accepts only models as data. Here an answer may also be a bool or a choice.
    class AcceptedElicitation(SdkAcceptedElicitation[Any], Generic[T]):
        """The user accepted; `data` is the answer."""

        data: T

    ElicitationResult: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
else:
    from mcp.server.elicitation import AcceptedElicitation, ElicitationResult

__all__ = ["AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation", "ElicitationResult", "Outcome"]


# This dataclass is not frozen: freezing makes creation three times as slow, and every question creates an outcome on
# every leg. No code changes an outcome.
@dataclass(slots=True, repr=False)
class Outcome:
    """Outcome of one question or node: the value, or the fact that the user declined or cancelled."""

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
            # The value is already validated, and it may be something other than a model.
            return AcceptedElicitation[Any].model_construct(data=self.value)
        return DeclinedElicitation() if self.action is Action.DECLINE else CancelledElicitation()
