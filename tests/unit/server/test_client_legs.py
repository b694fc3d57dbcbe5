"""A stored call whose leg needs a request of its client."""

from roundtrip.ledger.tasks import MAX_TRIES, TaskEntry
from roundtrip.machine.tasks import TaskState
from roundtrip.server.tasks.client_legs import leave_to_client
from roundtrip.server.tasks.content import TaskContent


def test_waiting_for_the_client_counts_as_no_death() -> None:
    content = TaskContent({}, {}, "2026-07-28", None, "secret", None, "")
    entry = TaskEntry("a", "ship", created=0, expires=1000, due=0, updated=0)
    for now in range(2 * MAX_TRIES):
        leave_to_client(content, entry, now, holder=str(now))
        assert entry.state is TaskState.WAITING
        assert content.needs_client
        entry.due = now
        assert entry.advance(now)
    # A worker that dies with it then is the first one.
    assert entry.claim("worker", 1.0, lease=30)
    assert entry.advance(100.0)
    assert entry.state is TaskState.DUE
