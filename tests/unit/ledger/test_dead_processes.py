"""Names of holders, and what follows from the death of a process."""

import subprocess
import sys

import pytest

from roundtrip.ledger import lease
from roundtrip.ledger.lease import bury, holder_name, name_process
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry

FORKED = """
import os
from roundtrip.ledger.lease import holder_name, name_process

name = name_process()
assert holder_name(b"1") == f"{name}.31"
if os.fork() == 0:
    os._exit(holder_name(b"1") != "31")
_, status = os.wait()
assert status == 0, "a child has the name of its parent"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no fork")
def test_forked_child_has_not_the_name_of_its_parent() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


@pytest.mark.parametrize(
    ("runs_once", "has_begun", "state"),
    [
        (True, True, StoredState.LOST),
        (True, False, StoredState.DUE),
        (False, True, StoredState.DUE),
    ],
)
def test_task_of_a_dead_process_waits_for_no_lease(
    runs_once: bool, has_begun: bool, state: StoredState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_buried", {})
    monkeypatch.setattr(lease, "_own", None)
    process = name_process()
    entry = CallEntry("a", "ship", created=0, expires=1000, due=0, updated=0, runs_once=runs_once)
    assert entry.claim(holder_name(b"one"), 1, lease=30)
    entry.has_begun = has_begun
    assert not entry.advance(2)
    bury(process)
    assert entry.advance(3)
    assert (entry.state, entry.deaths) == (state, 1)


def test_task_given_up_in_a_body_that_runs_once_is_lost_from_then_on() -> None:
    entry = CallEntry("a", "ship", created=0, expires=1000, due=0, updated=0, runs_once=True)
    assert entry.claim("one", 1, lease=30)
    entry.has_begun = True
    entry.give_up(5)
    assert (entry.state, entry.updated) == (StoredState.LOST, 5)
