"""What the running test has chosen for its users: by its mark, or by a fixture that it takes."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal

from roundtrip.clients.legs import Era
from roundtrip.recording.recorder import Recorder
from roundtrip.testing.networks.network import Network

__all__ = ["CHOSEN", "Choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How users speak that are not told it themselves."""

    era: Era = Era.RETRY
    network: Sequence[Network] = ()
    """What their requests go through, outermost first."""
    over: Literal["memory", "http"] = "memory"
    """How they speak to server objects."""
    recorder: Recorder | None = None
    """Writes down what roundtrip's servers in this process serve to them."""
    wired: bool = False
    """Whether every JSON-RPC message is kept; they speak HTTP then."""


_DEFAULT: Final = Choice()

CHOSEN: Final[ContextVar[Choice]] = ContextVar("roundtrip_testing", default=_DEFAULT)
