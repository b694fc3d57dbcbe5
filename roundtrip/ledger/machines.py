"""State machines for ledger entries and stored calls."""

from typing import Final

from roundtrip.machine.table import MachineTable, TableName, named


class EntryState(TableName):
    """States of a ledger entry."""

    FREE = named("free", "No leg has the claim. There may be notes from earlier holders.")
    HELD = named("held", "A leg has the claim, and its body has not begun.")
    RUNNING = named("running", "A leg has the claim, and its body is running.")
    LAPSED = named(
        "lapsed", "The lease ended while the body ran. Other legs get an error, because the outcome is unknown."
    )
    SETTLED = named("settled", "The body has ended, and the entry has its result.")
    DECLINED = named("declined", "The user declined, and the entry has the answer for later legs until it lapses.")
    UNKNOWN = named("unknown", "The holder recorded that the outcome will never be known.")


class EntryEvent(TableName):
    """Events of a ledger entry."""

    HOLD = named("hold", "A leg claims the call tentatively. Only the holder may repeat it.")
    START = named(
        "start",
        "A leg claims the call, and its body begins now. If the entry is not `free`, only the holder may do this.",
    )
    RENEW = named("renew", "The holder extends its lease.")
    NOTE = named("note", "The holder records a value for later holders.")
    SETTLE = named("settle", "The holder records the result, and may record the same result again.")
    DECLINE = named("decline", "The holder records that the user declined, and may record the same text again.")
    LOSE = named("lose", "The holder records that the outcome will never be known.")
    RELEASE = named("release", "The holder releases the claim.")
    LAPSE = named("lapse", "The lease ends, or the time for which the user's decline counts.")
    REOPEN = named(
        "reopen", 'A leg claims the call again, because the tool allows a second run (`on_unknown="rerun"`).'
    )
    VOID = named(
        "void",
        "A leg drops a result that no longer counts, and claims the call again. With equal digests, the notes stay.",
    )
    FORGET = named("forget", "The retention time has passed, and the entry is deleted with its notes.")


ENTRY_MACHINE: Final = MachineTable(
    "an entry",
    EntryState,
    EntryEvent,
    [
        ("free held running", EntryEvent.HOLD, "held held running"),
        ("free held running", EntryEvent.START, "running"),
        ("held running lapsed", EntryEvent.RENEW, "held running running"),
        ("held running lapsed", EntryEvent.NOTE, "held running lapsed"),
        ("held running lapsed settled unknown", EntryEvent.SETTLE, "settled"),
        ("held running lapsed declined", EntryEvent.DECLINE, "declined"),
        ("running lapsed unknown", EntryEvent.LOSE, "unknown"),
        ("held running lapsed", EntryEvent.RELEASE, "free"),
        ("held running declined", EntryEvent.LAPSE, "free lapsed free"),
        ("lapsed unknown", EntryEvent.REOPEN, "free"),
        ("settled", EntryEvent.VOID, "free"),
        ("free held running lapsed settled declined unknown", EntryEvent.FORGET, "free"),
    ],
)
"""The state machine of a ledger entry. Each claim of a free entry gets a new epoch. Writes with an older epoch are
rejected.
"""


class StoredState(TableName):
    """States of a task, which is a stored call that a worker continues."""

    DUE = named("due", "A worker should run the task. The client sees `working`.")
    RUNNING = named("running", "A worker has a lease on the task, and runs its body. The client sees `working`.")
    ASKING = named("asking", "Questions are pending, and no worker has the task. The client sees `input_required`.")
    WAITING = named(
        "waiting", "The task waits for a time, a signal or a page, and no worker has it. The client sees `working`."
    )
    COMPLETED = named("completed", "The task has a result, which may be a tool error.")
    FAILED = named("failed", "The task ended with a protocol error, or it expired.")
    LOST = named(
        "lost", "The task's workers died. Only an operator can let another worker continue. The client sees `failed`."
    )
    CANCELLED = named("cancelled", "The client cancelled the task.")


class StoredEvent(TableName):
    """Events of a task."""

    CLAIM = named("claim", "A worker takes the lease, with a new epoch.")
    RENEW = named("renew", "The worker extends its lease.")
    NOTE = named("note", "The worker stores a step's result, or a status message.")
    ASK = named("ask", "The body needs answers. The worker stores the journal and gives up the task.")
    WAIT = named(
        "wait", "The body needs time, a signal or a page. The worker stores the journal and gives up the task."
    )
    YIELD = named("yield", "The worker returns the unfinished task: the worker shuts down, or the leg will be retried.")
    ANSWER = named("answer", "Some answers arrive, and other questions are still open.")
    WAKE = named("wake", "All answers, a signal or the awaited time have arrived.")
    LAPSE = named("lapse", "The lease ends, and another worker may continue after the stored steps.")
    FINISH = named("finish", "The worker stores the result.")
    FAIL = named("fail", "The worker stores a protocol error.")
    LOSE = named("lose", "The worker died in a body that must not run twice, or too many workers died.")
    RETRY = named("retry", "An operator lets a worker continue after the stored steps.")
    CANCEL = named("cancel", "The client cancels the task. A worker that runs the task is stopped at its next write.")
    EXPIRE = named("expire", "The task's time to live has passed, or an operator ends the task.")


TASK_MACHINE: Final = MachineTable(
    "a task",
    StoredState,
    StoredEvent,
    [
        ("due", StoredEvent.CLAIM, "running"),
        ("running", StoredEvent.RENEW, "running"),
        ("running", StoredEvent.NOTE, "running"),
        ("running", StoredEvent.ASK, "asking"),
        ("running", StoredEvent.WAIT, "waiting"),
        ("running", StoredEvent.YIELD, "due"),
        ("asking", StoredEvent.ANSWER, "asking"),
        ("asking waiting", StoredEvent.WAKE, "due"),
        ("running", StoredEvent.LAPSE, "due"),
        ("running", StoredEvent.FINISH, "completed"),
        ("running", StoredEvent.FAIL, "failed"),
        ("running", StoredEvent.LOSE, "lost"),
        ("lost", StoredEvent.RETRY, "due"),
        ("due running asking waiting", StoredEvent.CANCEL, "cancelled"),
        ("due running asking waiting lost", StoredEvent.EXPIRE, "failed"),
    ],
)
"""The state machine of every task, in every store. A worker's write is rejected if its epoch is not the task's current
epoch.
"""

ENDED: Final = TASK_MACHINE.final | {StoredState.LOST}
"""States in which the client sees the task as ended."""
