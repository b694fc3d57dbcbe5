"""A person who approves, while playwright's synchronous interface uses this thread."""

from anyio.from_thread import start_blocking_portal

from tests.kit.approving import Person

__all__ = ["approve"]


def approve(url: str) -> None:
    """Approve the only open request, as its group."""
    with start_blocking_portal() as portal:
        portal.call(Person(url, "fred").decide, "approve")
