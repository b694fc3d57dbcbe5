"""Answer the questions of one path, and watch the instances that serve it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    Root,
)

from roundtrip.client.legs import Era
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import Watch
from roundtrip.testing.conversations import AskedQuestion, Conversation
from roundtrip.testing.exploration.explored import Path, PathAction
from roundtrip.testing.forms import invalid_answers, valid_answer
from roundtrip.testing.networks.fleet import is_crash
from roundtrip.testing.scripts import ACCEPT, IGNORE, LEAVE, Answers, Script, Silence, response_to
from roundtrip.testing.users import Unused
from roundtrip.tracing import Beginning, Raised, TokenRejection

__all__ = ["Contents", "Guide", "Met", "Way"]


Way = tuple[tuple[str, PathAction], ...]
"""The actions for the first questions of a path; later questions are accepted."""


class Contents:
    """The answers that accept: those of the test's author, else samples derived from schemas."""

    def __init__(self, answers: Answers) -> None:
        self._entries = [{matcher: reply} for matcher, reply in answers.items()]
        self._used: set[int] = set()
        self._made: dict[str, tuple[Any, ...]] = {}

    def scripts(self) -> list[Script]:
        """Return the author's answers for one path, which uses up its own copy of each list."""
        return [Script(entry) for entry in self._entries]

    def accepting(self, question: AskedQuestion, scripts: Sequence[Script]) -> InputResponse:
        """Return an answer that accepts a form, a page or a model's turn.

        Raises:
            ValueError: No such answer is known.
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
        """Return an answer that a form rejects; None if none is known."""
        schema = repr(question.schema)
        if schema not in self._made:
            try:
                self._made[schema] = tuple(invalid_answers(question.schema)[:1])
            except ValueError:
                self._made[schema] = ()
        return next((response_to(question, content) for content in self._made[schema]), None)

    def check_all_used(self, gone: Sequence[Path]) -> None:
        """Raise if no path needed some answers, whose names are usually misspelled.

        Raises:
            Unused: With those answers.
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
    """The other actions that were possible."""

    @property
    def choice(self) -> tuple[str, PathAction]:
        """The question's name, or its message if it has no name, and the action."""
        name = self.question.key
        return (self.question.message if name is None else name), self.action


@dataclass(eq=False)
class Guide(Script):
    """The user of one path, who follows its way and accepts the questions after that; also a tracer of the servers."""

    way: Way
    contents: Contents
    era: Era
    roots: Sequence[Root]
    depth: int
    questions: int
    met: list[Met] = field(default_factory=list[Met])
    strayed: bool = False
    endless: bool = False
    mistake: Exception | None = None
    """A mistake in the author's answers."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The scope of the call, which the guide may cancel."""
    conversation: Conversation | None = None
    """The call, if it has a result."""
    error: MCPError | AssertionError | None = None
    """The error that the client received or the user raised."""
    told: bool = False
    """True if a server reports facts, as roundtrip's servers do."""
    steps: list[Transition] = field(default_factory=list[Transition])
    rejected: bool = False
    """True after a server rejected the call's token."""
    crash: BaseException | None = None
    """The unexpected exception that ended the call."""
    _scripts: list[Script] = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        self._scripts = self.contents.scripts()

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the call, and not the calls within it."""
        self.told = True
        return self._note if beginning.within is None else _ignore

    def reject(self, rejection: TokenRejection) -> None:
        """Note that a server rejected the call's token."""
        del rejection
        self.told = self.rejected = True

    def _note(self, fact: object) -> None:
        if self.scope.cancel_called:
            # Until the server notices the cancellation, it reports facts that are not the tool's.
            return
        if isinstance(fact, Transition):
            self.steps.append(fact)
        elif isinstance(fact, Raised) and is_crash(fact.error):
            self.crash = fact.error

    def reply(self, question: AskedQuestion) -> InputResponse | Silence:
        """Return the answer to a question."""
        place = len(self.met)
        try:
            if place < self.questions:
                return self._reply(question, place)
            self.endless = True
        except Exception as error:  # noqa: BLE001  # raised here it would look like the server's
            self.mistake = self.mistake or error
        self.scope.cancel()
        return LEAVE

    def _reply(self, question: AskedQuestion, place: int) -> InputResponse | Silence:
        possible = self._possible(question) if place < self.depth else [PathAction.ACCEPT]
        action = PathAction.ACCEPT
        if place < len(self.way):
            name, action = self.way[place]
            if action not in possible or name not in (question.key, question.message):
                self.strayed = True
                action = action if action in possible else PathAction.ACCEPT
        self.met.append(Met(question, action, [other for other in possible if other is not action]))
        match action:
            case PathAction.ACCEPT if question.params is None:
                return ListRootsResult(roots=list(self.roots))
            case PathAction.ACCEPT:
                return self.contents.accepting(question, self._scripts)
            case PathAction.INVALID:
                return self.contents.invalid(question) or IGNORE
            case PathAction.MISSING:
                return IGNORE
            case PathAction.DECLINE | PathAction.CANCEL:
                return ElicitResult(action=action.value)

    def _possible(self, question: AskedQuestion) -> list[PathAction]:
        possible = [PathAction.ACCEPT]
        if question.params is not None and not isinstance(question.params, CreateMessageRequestParams):
            possible += [PathAction.DECLINE, PathAction.CANCEL]
        if isinstance(question.params, ElicitRequestFormParams) and self.contents.invalid(question) is not None:
            possible.append(PathAction.INVALID)
        # On the live era the SDK's client answers every request.
        if self.era is not Era.LIVE:
            possible.append(PathAction.MISSING)
        return possible


def _ignore(fact: object) -> None:
    del fact
