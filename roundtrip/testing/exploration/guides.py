"""Answers along a path: what can be done about a question, and with what content."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from mcp_types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    Root,
)

from roundtrip.client.legs import Era
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.exploration.explored import Path, PathAction
from roundtrip.testing.exploration.watching import Watching
from roundtrip.testing.forms import invalid_answers, valid_answer
from roundtrip.testing.scripts import ACCEPT, IGNORE, LEAVE, Answers, Script, Silence, response_to
from roundtrip.testing.users import Unused

__all__ = ["Contents", "Guide", "Met", "Way"]

Way = tuple[tuple[str, PathAction], ...]
"""What to do about the first questions; what comes after them is accepted."""


class Contents:
    """What to answer forms with: what the author says, else what can be made up."""

    def __init__(self, answers: Answers) -> None:
        self._entries = [{matcher: reply} for matcher, reply in answers.items()]
        self._used: set[int] = set()
        self._made: dict[str, tuple[Any, ...]] = {}

    def scripts(self) -> list[Script]:
        """The author's answers for one path: lists are used up in each anew."""
        return [Script(entry) for entry in self._entries]

    def accepting(self, question: AskedQuestion, scripts: Sequence[Script]) -> InputResponse:
        """An answer that accepts a form, a page or a model's turn.

        Raises:
            ValueError: There is none.
        """
        for place, script in enumerate(scripts):
            response = script.reply(question)
            if response is None:
                continue
            self._used.add(place)
            if isinstance(response, Silence):
                raise ValueError(f"answers= says what to accept with, and has {response.name} for {question}")
            if isinstance(response, ElicitResult) and response.action != "accept":
                raise ValueError(f"answers= says what to accept with, and has {response.action!r} for {question}")
            return response
        if isinstance(question.params, CreateMessageRequestParams):
            return response_to(question, "text")
        if question.schema is None:
            return response_to(question, ACCEPT)
        try:
            return response_to(question, valid_answer(question.schema))
        except ValueError as error:
            raise ValueError(f"answers= must say what to accept the question {question} with: {error}") from error

    def invalid(self, question: AskedQuestion) -> InputResponse | None:
        """An answer that a form refuses, if there is one."""
        schema = repr(question.schema)
        if schema not in self._made:
            try:
                self._made[schema] = tuple(invalid_answers(question.schema)[:1])
            except ValueError:
                self._made[schema] = ()
        return next((response_to(question, content) for content in self._made[schema]), None)

    def check_all_used(self, gone: Sequence[Path]) -> None:
        """Complain of answers that nobody asked for: their names are misspelt, mostly.

        Raises:
            Unused: There are some.
        """
        unused = [
            name
            for place, entry in enumerate(self._entries)
            if place not in self._used
            for name in Script(entry).unused
        ]
        if unused:
            asked = {str(question): question for path in gone for question in path.questions}
            raise Unused(unused, list(asked.values()), ended=", ".join(sorted({str(path.outcome) for path in gone})))


@dataclass(slots=True)
class Met:
    """A question on a path."""

    question: AskedQuestion
    action: PathAction
    others: Sequence[PathAction]
    """What else could have been done about it."""

    @property
    def choice(self) -> tuple[str, PathAction]:
        """What it is called, and what was done about it."""
        name = self.question.key
        return (self.question.message if name is None else name), self.action


class Guide:
    """Answers the questions of one call as its way says, and accepts the rest."""

    def __init__(
        self,
        way: Way,
        contents: Contents,
        watching: Watching,
        *,
        era: Era,
        roots: Sequence[Root],
        depth: int,
        questions: int,
    ) -> None:
        self.met: list[Met] = []
        self.strayed = False
        self.endless = False
        self.mistake: Exception | None = None
        """What is wrong with what the author gave."""
        self.scope = anyio.CancelScope()
        """What the call has to run in, so that it can be broken off."""
        self._way = way
        self._contents = contents
        self._watching = watching
        self._scripts = contents.scripts()
        self._era = era
        self._roots = roots
        self._depth = depth
        self._questions = questions

    @property
    def listed(self) -> bool:
        """No answer is for one time alone."""
        return False

    @property
    def unused(self) -> list[str]:
        """Nothing: what this path has no use for, another may have."""
        return []

    def reply(self, question: AskedQuestion) -> InputResponse | Silence:
        """The answer to a question."""
        place = len(self.met)
        if place >= self._questions:
            self.endless = True
            self._break_off()
            return LEAVE
        try:
            return self._reply(question, place)
        except Exception as error:  # noqa: BLE001  # raised here it would be taken for the server's
            self.mistake = self.mistake or error
            self._break_off()
            return LEAVE

    def _break_off(self) -> None:
        # What the server does before it notices is not the tool's.
        self._watching.over = True
        self.scope.cancel()

    def _reply(self, question: AskedQuestion, place: int) -> InputResponse | Silence:
        possible = self._possible(question) if place < self._depth else [PathAction.ACCEPT]
        action = PathAction.ACCEPT
        if place < len(self._way):
            name, action = self._way[place]
            if action not in possible or name not in (question.key, question.message):
                self.strayed = True
                action = action if action in possible else PathAction.ACCEPT
        self.met.append(Met(question, action, [other for other in possible if other is not action]))
        match action:
            case PathAction.ACCEPT if question.params is None:
                return ListRootsResult(roots=list(self._roots))
            case PathAction.ACCEPT:
                return self._contents.accepting(question, self._scripts)
            case PathAction.INVALID:
                return self._contents.invalid(question) or IGNORE
            case PathAction.MISSING:
                return IGNORE
            case PathAction.DECLINE | PathAction.CANCEL:
                return ElicitResult(action=action.value)

    def _possible(self, question: AskedQuestion) -> list[PathAction]:
        possible = [PathAction.ACCEPT]
        if question.params is not None and not isinstance(question.params, CreateMessageRequestParams):
            possible += [PathAction.DECLINE, PathAction.CANCEL]
        if isinstance(question.params, ElicitRequestFormParams) and self._contents.invalid(question) is not None:
            possible.append(PathAction.INVALID)
        # Over an open connection, a request is answered.
        if self._era is not Era.LIVE:
            possible.append(PathAction.MISSING)
        return possible
