"""What the running test has chosen for its users: by its mark, or by a fixture that it takes."""

from dataclasses import dataclass, field
from typing import Final, Literal

from roundtrip.client.legs import Era
from roundtrip.testing.networks.network import Network
from roundtrip.trace.writing.recorder import Recorder

__all__ = ["CHOSEN", "Chosen", "UserDefaults"]


@dataclass(frozen=True, slots=True)
class UserDefaults:
    """How users speak that are not told it themselves."""

    era: Era = Era.RETRY
    network: tuple[Network, ...] = ()
    """What their requests go through, outermost first."""
    over: Literal["memory", "http"] = "memory"
    """How they speak to server objects."""
    recorder: Recorder | None = None
    """Writes down what roundtrip's servers in this process serve to them."""
    wired: bool = False
    """Whether every JSON-RPC message is kept; they speak HTTP then."""
    carried: list[str] = field(default_factory=list[str])
    """What has been called through the networks."""


class Chosen:
    """The choice of the test that runs now.

    A process runs one test at a time, in whatever threads and tasks. A context variable would not do: the task that
    runs asynchronous tests keeps the context of its first fixture.
    """

    def __init__(self) -> None:
        self._now = UserDefaults()

    def get(self) -> UserDefaults:
        """The choice."""
        return self._now

    def set(self, choice: UserDefaults) -> UserDefaults:
        """Choose; what was chosen before, to be chosen again afterwards."""
        before, self._now = self._now, choice
        return before


CHOSEN: Final = Chosen()
