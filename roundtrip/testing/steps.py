"""Every step that a server's calls take, kept: `Steps`."""

from roundtrip.machine.call import Transition
from roundtrip.machine.table import Event, State
from roundtrip.tracing import TokenRejection

__all__ = ["Steps"]


class Steps:
    """An observer that keeps every step: give it to a server as `trace=`.

    Example:
        ```python
        trace = Steps()
        await User(Server("cinema", trace=trace), answers).call("book", film="Solaris")
        assert trace.states[-1] is State.COMPLETED
        ```
    """

    def __init__(self) -> None:
        self.steps: list[Transition] = []
        self.rejections: list[TokenRejection] = []
        """The tokens that the server rejected."""

    def __call__(self, fact: Transition | TokenRejection) -> None:
        """Keep a step, or a rejected token."""
        if isinstance(fact, Transition):
            self.steps.append(fact)
        else:
            self.rejections.append(fact)

    @property
    def events(self) -> list[Event]:
        """What made each step."""
        return [step.event for step in self.steps]

    @property
    def states(self) -> list[State]:
        """The states that the calls went through, the first step's source first."""
        return [self.steps[0].source, *(step.target for step in self.steps)] if self.steps else []

    @property
    def asked(self) -> list[dict[str, str]]:
        """Per round of questions, the name of each with why it was asked."""
        return [dict(step.detail["reasons"]) for step in self.steps if "reasons" in step.detail]
