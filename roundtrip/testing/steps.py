"""`Steps`: an observer that keeps every transition of a server's calls."""

from roundtrip.machine.call import Transition
from roundtrip.machine.table import Event, State
from roundtrip.tracing import TokenRejection

__all__ = ["Steps"]


class Steps:
    """Keeps every transition of a server's calls; give it to the server as `trace=`.

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
        """Keep a transition, or a rejected token."""
        if isinstance(fact, Transition):
            self.steps.append(fact)
        else:
            self.rejections.append(fact)

    @property
    def events(self) -> list[Event]:
        """Return the event of each transition."""
        return [step.event for step in self.steps]

    @property
    def states(self) -> list[State]:
        """Return the states of the calls, the source of the first transition first."""
        return [self.steps[0].source, *(step.target for step in self.steps)] if self.steps else []

    @property
    def asked(self) -> list[dict[str, str]]:
        """Return the questions of each round, by name, with the reason for each."""
        return [dict(step.detail["reasons"]) for step in self.steps if "reasons" in step.detail]
