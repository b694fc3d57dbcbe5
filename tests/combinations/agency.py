"""A travel agency: the shared data of its instances, and a record of their effects."""

from collections import Counter
from typing import Any

from mcp.server.auth.provider import AccessToken

from roundtrip import Server
from roundtrip.testing import Visit
from roundtrip.testing.networks.fleet import KEYS
from tests.interaction.secrecy.markers import Markers

__all__ = ["Agency"]


class Agency:
    """Shared data of an agency's instances: its books, and words that must show up nowhere else."""

    def __init__(self) -> None:
        self.plant = Markers()
        self.counted: Counter[str] = Counter()
        self.booked: Counter[str] = Counter()
        """How often each call has been booked."""
        self.paid: set[str] = set()
        self.user: str | AccessToken | None = None
        """User in front of the browser, where users can be distinguished."""
        self.traveller = self.plant("argument")
        self.secret_quote = self.plant("once")
        self.secret_receipt = self.plant("done")
        self.secret_reservation = self.plant("step")

    @property
    def secrets(self) -> list[str]:
        """Return the words that clients must not read."""
        return [self.secret_quote, self.secret_receipt, self.secret_reservation]

    def count(self, what: str) -> None:
        self.counted[what] += 1

    def book(self, call_id: str) -> None:
        self.booked[call_id] += 1

    def visit(self, visit: Visit) -> None:
        """Pay on the page of a question."""
        # The page is on any instance, whatever keys calls are signed with by now.
        door = Server[Any]("agency", keys=list(KEYS))
        ticket = visit.query["t"].partition("#")[0]
        self.paid.add(door.verify_ticket(ticket, principal=self.user, purpose="pay").call_id)
