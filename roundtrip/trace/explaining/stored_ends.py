"""Explanations of events outside a stored call's legs: operator actions and ends."""

from roundtrip.machine.table import State
from roundtrip.text import printable
from roundtrip.trace.explaining.wording import quoted, stop_text
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import ActedLine, StoppedLine


def end_of_stored(call: TracedCall) -> ActedLine | StoppedLine | None:
    """Return the line that says why a call ended outside a leg. Return None if the call ended in a leg or is open.

    An operator action is more informative than the resulting end, so the action takes precedence.
    """
    if call.ended_by is not None and (call.stopped is not None or call.state is State.FAILED):
        return call.ended_by
    return call.stopped


def explain_stop(call: TracedCall, line: StoppedLine) -> str:
    """Explain why a stored call ended outside a leg."""
    if line.how == "lost":
        return (
            "The call is lost: its worker died, and no other worker continues it, because its outcome is unknown or "
            "too many workers died while they ran it. Check its effects. Then use `roundtrip calls retry` to let a "
            "worker continue after its stored steps."
        )
    if line.how == "unstored":
        return "The call ended because its questions could not be stored; the server told its client to try again."
    if line.how == "joined":
        return f"An equal call was already waiting, so {stop_text(line)}; look at that call."
    is_task = any(serving.is_handed for serving in call.servings)
    if line.how == "expired":
        waited = ", ".join(quoted(question.key) for question in call.unanswered)
        where = f" while it waited for an answer to {waited}" if waited else ""
        option = "task_ttl=" if is_task else "max_age="
        return f"The call ended because its time expired{where}; raise {option} if it needs longer."
    by = "its client cancelled its task"
    if not is_task:
        by = "its client left or declined its link, or an operator ended it and the operator log was not read"
    return f"The call ended because {by}; nothing needs to be fixed if that was intended."


def explain_action(line: ActedLine) -> str:
    """Explain what an operator did with a stored call."""
    by = quoted(line.by)
    where = "with a command" if line.instance == "command" else "on the pages of roundtrip ui"
    if line.outcome == "rejected":
        return f"{by} tried to {line.action} the call {where}, but the action was rejected: {printable(line.why)}."
    match line.action:
        case "cancel":
            return f"The call ended because {by} cancelled it {where}; the client must begin it again if it should run."
        case "expire":
            return f"The call ended because {by} expired it {where}; the client must begin it again."
        case "retry":
            return f"A worker continued the lost call after its stored steps, because {by} retried it {where}."
        case "remind":
            return f"The groups with pending approvals were notified again, because {by} reminded them {where}."
        case "answer":
            return f"{by} answered question {quoted(line.why)} {where}, as a test user."
