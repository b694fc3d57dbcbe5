"""Attacks on calls that become tasks. They try other users, unknown tasks and reused question keys."""

from collections.abc import Mapping
from typing import Any, Final

import anyio
from mcp_types import INVALID_PARAMS

from roundtrip.audit.messages import WITH_TASKS, WireResponse, on_wire
from roundtrip.audit.sessions import AuditedTool, AuditSession
from roundtrip.audit.watching import parse_question
from roundtrip.client.failures import CallFailed
from roundtrip.testing.attacks.answers import invalid_responses
from roundtrip.testing.attacks.states import flip
from roundtrip.untrusted import mapping_of

_MAX_POLLS: Final = 100
_MAX_UNCHANGED_POLLS: Final = 10
"""Number of polls in which an answered question may still appear. After that, the audit concludes that the server
ignored the answer.
"""
_MAX_PAUSE_SECONDS: Final = 1.0
_MIN_PAUSE_SECONDS: Final = 0.02
_ENDED: Final = ("completed", "failed", "cancelled")


class TaskAttacks:
    """The attacks on one tool's calls that become tasks.

    Args:
        session: The session.
        tool: The tool.
    """

    def __init__(self, session: AuditSession, tool: AuditedTool) -> None:
        self._session = session
        self._notes = session.notes[tool.name]
        self._tool = tool

    async def run(self) -> None:
        """Call the tool as a client that supports tasks. If the call becomes a task, attack the task."""
        call = await self._session.play(self._tool, capabilities=WITH_TASKS)
        if (id := call.last.task_id) is None:
            if call.asked:
                self._notes.untried("T1", "the call does not become a task")
            return
        await self._strangers(id)
        await self._follow(id)

    async def _strangers(self, id: str) -> None:
        other = f"{flip(id[0])}{id[1:]}"
        unknown = await self._send("tasks/get", {"taskId": other})
        text = f"an unknown task was answered with {unknown.summary}"
        self._notes.require((unknown.error or {}).get("code") == INVALID_PARAMS, "T3", text)
        if not self._session.has_other:
            self._notes.untried("T4", "the test needs --other-header with another user's credentials")
            return
        foreign = await self._send("tasks/get", {"taskId": id}, is_other=True)
        # Both errors may quote the task ID.
        same = foreign.error is not None and foreign.rejection.replace(id, other) == unknown.rejection
        self._notes.require(same, "T4", f"another user's request for the task was answered with {foreign.summary}")

    async def _follow(self, id: str) -> None:
        """Answer a task's questions. The first answer is invalid; all later answers are valid."""
        asked: dict[str, Any] = {}
        answered: set[str] = set()
        gone: set[str] = set()
        has_sent_invalid = False
        unchanged = 0
        for _ in range(_MAX_POLLS):
            task = (await self._send("tasks/get", {"taskId": id})).result
            if task is None:
                self._notes.untried("T1", "the server did not return the task")
                return
            questions = mapping_of(task.get("inputRequests"))
            for key, request in questions.items():
                reused = (key in answered and key in gone) or (key in asked and asked[key] != request)
                text = f"the key {key!r} was used again after its answer had arrived, or for another question"
                self._notes.require(not reused, "T1", text)
                asked[key] = request
            gone |= answered - questions.keys()
            if task.get("status") in _ENDED:
                return
            unchanged = unchanged + 1 if questions and questions.keys() <= answered else 0
            if unchanged >= _MAX_UNCHANGED_POLLS:
                # The server ignored the invalid answer and still asks the question, which is allowed.
                answered -= questions.keys()
            new = {key: request for key, request in questions.items() if key not in answered}
            if new:
                answers = self._invalid(new) if not has_sent_invalid else None
                has_sent_invalid = True
                if answers is None:
                    try:
                        answers = self._session.answers(self._tool.name, new)
                    except CallFailed as failure:
                        self._notes.untried("T1", f"{failure}")
                        return
                answered |= answers.keys()
                await self._send("tasks/update", {"taskId": id, "inputResponses": answers})
            await anyio.sleep(_pause(task))
        self._notes.untried("T1", f"the task has not ended after {_MAX_POLLS} polls")

    def _invalid(self, questions: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return an invalid answer to one of the questions. Return None if no invalid answer can be generated."""
        for key, request in questions.items():
            question = parse_question(request)
            if question is None:
                continue
            try:
                for _, answer in invalid_responses(question):
                    return {key: on_wire(answer)}
            except ValueError:
                continue
        return None

    async def _send(self, method: str, params: Mapping[str, Any], *, is_other: bool = False) -> WireResponse:
        return await self._session.send(method, params, capabilities=WITH_TASKS, is_other=is_other)


def _pause(task: Mapping[str, Any]) -> float:
    wanted = task.get("pollIntervalMs")
    seconds = wanted / 1000 if isinstance(wanted, int | float) else _MIN_PAUSE_SECONDS
    return min(max(seconds, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
