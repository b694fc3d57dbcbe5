"""Exploration of a tool's questions. Each combination of replies is played as a separate call."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    InputResponse,
    ListRootsResult,
    Root,
)

from roundtrip.client.legs import Era, LegRequest
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import Watch
from roundtrip.machine.table import CallArrow, State
from roundtrip.testing.approvers import Approver
from roundtrip.testing.conversations import AskedQuestion, Conversation
from roundtrip.testing.exploration.explored import Coverage, Explored, Path, PathAction, PathOutcome
from roundtrip.testing.forms import invalid_answers, valid_answer
from roundtrip.testing.networks.deliveries import Breach, is_bare_failure, is_internal
from roundtrip.testing.networks.fleet import Target, ignore, is_crash
from roundtrip.testing.scripts import ACCEPT, IGNORE, LEAVE, Answers, AnswersBy, MatcherT, Script, Silence, response_to
from roundtrip.testing.users import PageT, Unused, User
from roundtrip.testing.visits import VisitsBy
from roundtrip.tracing import Beginning, Raised, TokenRejection

_ACTION_ORDER: Final = list(PathAction)
_OUTCOMES_BY_STATE: Final[Mapping[State | None, PathOutcome]] = {
    State.DECLINED: PathOutcome.DECLINED,
    State.REJECTED: PathOutcome.REJECTED,
}


async def paths(
    server: Target,
    tool: str | LegRequest,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: AnswersBy[MatcherT] | None = None,
    visits: VisitsBy[PageT] | None = None,
    approver: Approver | Sequence[Approver] | None = None,
    principal: AccessToken | str | None = None,
    depth: int = 3,
    limit: int = 500,
    era: Era | None = None,
    roots: Sequence[Root] | None = None,
    questions: int = 30,
    patience: float = 30,
    allow_unused: bool = False,
) -> Explored:
    """Play every path through a tool's questions, and report each path.

    The first path accepts everything. At each of its first `depth` questions, other paths branch off. They decline,
    cancel, answer with invalid content, or do not answer, if the question's kind and the era allow this. These paths
    branch in the same way at their own later questions. Each path is a complete call. If the server reports an error or
    crashes, this is recorded as the path's outcome, and no exception is raised.

    Args:
        server: The server, as for `User`. A factory is called once per path.
        tool: The tool's name, or a call's first leg.
        arguments: The tool's arguments.
        answers: The content of accepted forms, as for `User`. The default is the simplest content that fits.
        visits: Page visits, as for `User`. If a path agrees to open a page and there is no visit, the path does not
            finish.
        approver: As for `User`.
        principal: As for `User`.
        depth: The number of questions per path at which other paths branch off.
        limit: The maximum number of paths. Paths with the fewest deviations are played first.
        era: As for `User`.
        roots: As for `User`.
        questions: The maximum number of questions per path. The path is stopped at the next question.
        patience: How many seconds a path may take.
        allow_unused: Allow answers that no path needed. If the limit left out paths, these answers are always allowed.

    Raises:
        ValueError: `answers` has no content for a form, and none can be derived from the form's schema.
        Unused: Some of the answers were never used.

    Example:
        ```python
        explored = await paths(make_server, "book", {"film": "Solaris"})
        explored.assert_no_crash()
        ```
    """
    if depth < 0 or limit < 1 or questions < 1:
        raise ValueError("depth= must be at least 0, and limit= and questions= must be at least 1")
    leg = tool if isinstance(tool, LegRequest) else LegRequest(tool, dict(arguments or {}))
    user_options = {"visits": visits, "approver": approver, "principal": principal, "era": era, "roots": roots}
    exploration = _Exploration(server, leg, answers or {}, user_options, depth, questions, patience)
    waiting: deque[_Choices] = deque([()])
    while waiting and len(exploration.finished_paths) < limit:
        waiting.extend(await exploration.play_path(waiting.popleft()))
    if not waiting and not allow_unused:
        exploration.check_all_used()
    return Explored(
        name=leg.name,
        era=exploration.user().era,
        depth=depth,
        limit=limit,
        paths=tuple(sorted(exploration.finished_paths, key=_action_indexes)),
        left_out=len(waiting),
        strayed=exploration.strayed,
        coverage=Coverage.of(exploration.arrows) if exploration.has_facts else None,
    )


def _action_indexes(path: Path) -> list[int]:
    return [_ACTION_ORDER.index(action) for _, action in path.choices]


_Choices = tuple[tuple[str, PathAction], ...]
"""The actions for the first questions on a path. All later questions are accepted."""


@dataclass(slots=True)
class _PathQuestion:
    """A question on a path, with the chosen action."""

    question: AskedQuestion
    action: PathAction
    others: Sequence[PathAction]
    """The other actions that were possible for this question."""

    @property
    def choice(self) -> tuple[str, PathAction]:
        """Return the action, and the question's name. If the question has no name, return its message instead."""
        name = self.question.name
        return (self.question.message if name is None else name), self.action


@dataclass(eq=False)
class _Guide(Script):
    """The script for one path. It first takes the path's actions, and then accepts all other questions. The script is
    also a tracer.
    """

    choices: _Choices
    exploration: "_Exploration"
    era: Era
    path_questions: list[_PathQuestion] = field(default_factory=list[_PathQuestion])
    has_strayed: bool = False
    is_endless: bool = False
    mistake: Exception | None = None
    """The first error that the author must fix in `answers`; None if there is none."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The call's cancel scope. The script cancels it to stop the path."""
    conversation: Conversation | None = None
    """The call, if it ended with a result."""
    error: MCPError | AssertionError | None = None
    """The error that the client received or that the user raised."""
    has_facts: bool = False
    """True if the server reports facts. Only roundtrip servers report facts."""
    transitions: list[Transition] = field(default_factory=list[Transition])
    is_rejected: bool = False
    """True once a server has rejected the call's token."""
    crash: BaseException | None = None
    """The unexpected exception that ended the call."""

    def __post_init__(self) -> None:
        # The author's answers are used to accept questions. Each path uses up its own copy of each answer list.
        super().__init__(self.exploration.answers)

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the call, but not the calls that are nested in it."""
        self.has_facts = True
        return self._record_fact if beginning.within is None else ignore

    def reject(self, rejection: TokenRejection) -> None:
        """Record that a server rejected the call's token."""
        self.has_facts = self.is_rejected = True

    def _record_fact(self, fact: object) -> None:
        if self.scope.cancel_called:
            # The server may report more facts before it notices the cancellation. Ignore these facts, because the tool
            # did not cause them.
            return
        if isinstance(fact, Transition):
            self.transitions.append(fact)
        elif isinstance(fact, Raised) and is_crash(fact.error):
            self.crash = fact.error

    def reply(self, question: AskedQuestion) -> InputResponse | Silence:
        """Return the answer to a question."""
        index = len(self.path_questions)
        try:
            if index < self.exploration.questions:
                return self._reply(question, index)
            self.is_endless = True
        except Exception as error:  # noqa: BLE001  # raised here, it would look like the server's error
            self.mistake = self.mistake or error
        self.scope.cancel()
        return LEAVE

    def _reply(self, question: AskedQuestion, index: int) -> InputResponse | Silence:
        possible = self._possible_actions(question) if index < self.exploration.depth else [PathAction.ACCEPT]
        action = PathAction.ACCEPT
        if index < len(self.choices):
            name, action = self.choices[index]
            if action not in possible or name not in (question.name, question.message):
                self.has_strayed = True
                action = action if action in possible else PathAction.ACCEPT
        self.path_questions.append(
            _PathQuestion(question, action, [other for other in possible if other is not action])
        )
        match action:
            case PathAction.ACCEPT if question.params is None:
                return ListRootsResult(roots=list(self.exploration.user_options["roots"] or ()))
            case PathAction.ACCEPT:
                return self._accept(question)
            case PathAction.INVALID:
                return self.exploration.invalid(question) or IGNORE
            case PathAction.MISSING:
                return IGNORE
            case PathAction.DECLINE | PathAction.CANCEL:
                return ElicitResult(action=action.value)

    def _accept(self, question: AskedQuestion) -> InputResponse:
        """Return an answer that accepts a form, page or model question. Raise ValueError if no valid answer is
        known.
        """
        response = super().reply(question)
        # Another path may need the same answer.
        self.is_single_use = False
        if isinstance(response, Silence):
            raise ValueError(f"answers= must accept every question, got {response.name} for {question}")
        if isinstance(response, ElicitResult) and response.action != "accept":
            raise ValueError(f"answers= must accept every question, got {response.action!r} for {question}")
        if response is not None:
            return response
        if isinstance(question.params, CreateMessageRequestParams):
            return response_to(question, "text")
        if question.schema is None:
            return response_to(question, ACCEPT)
        try:
            return response_to(question, valid_answer(question.schema))
        except ValueError as error:
            raise ValueError(
                f"answers= must contain an answer that accepts the question {question}: {error}"
            ) from error

    def _possible_actions(self, question: AskedQuestion) -> list[PathAction]:
        possible = [PathAction.ACCEPT]
        if question.params is not None and not isinstance(question.params, CreateMessageRequestParams):
            possible += [PathAction.DECLINE, PathAction.CANCEL]
        if isinstance(question.params, ElicitRequestFormParams) and self.exploration.invalid(question) is not None:
            possible.append(PathAction.INVALID)
        # In the live era, the SDK's client always answers.
        if self.era is not Era.LIVE:
            possible.append(PathAction.MISSING)
        return possible


@dataclass(slots=True)
class _Exploration:
    """An exploration's settings and results."""

    server: Target
    leg: LegRequest
    answers: Answers
    user_options: Mapping[str, Any]
    """Arguments for each path's `User`, without the answers."""
    depth: int
    questions: int
    patience: float
    finished_paths: list[Path] = field(default_factory=list[Path])
    strayed: int = 0
    arrows: set[CallArrow] = field(default_factory=set[CallArrow])
    has_facts: bool = False
    used_indexes: set[int] = field(default_factory=set[int])
    """The positions, in `answers`, of all answers that a path needed."""
    _invalid: dict[str, Mapping[str, Any] | None] = field(default_factory=dict[str, Mapping[str, Any] | None])
    """Content that a form rejects, by the form's schema as text."""

    def invalid(self, question: AskedQuestion) -> InputResponse | None:
        """Return an answer that the form rejects; None if no invalid answer is known."""
        schema = repr(question.schema)
        if schema not in self._invalid:
            try:
                self._invalid[schema] = next(iter(invalid_answers(question.schema)), None)
            except ValueError:
                self._invalid[schema] = None
        content = self._invalid[schema]
        return response_to(question, content) if content is not None else None

    def check_all_used(self) -> None:
        """Raise Unused if there is an answer that no path needed. Its question name is probably misspelled."""
        unused = [name for index, name in enumerate(Script(self.answers).unused) if index not in self.used_indexes]
        if unused:
            asked = {str(question): question for path in self.finished_paths for question in path.questions}
            ended = ", ".join(sorted({str(path.outcome) for path in self.finished_paths}))
            raise Unused(unused, list(asked.values()), ended=ended)

    def user(self) -> User:
        """Return a new user for one path. If the server is a factory, each user makes a new server."""
        return User(self.server, **self.user_options, allow_error=True, allow_unused=True)

    async def play_path(self, choices: _Choices) -> list[_Choices]:
        """Play one path, and return the paths that branch off from it."""
        user = self.user()
        guide = _Guide(choices, self, user.era)
        with anyio.move_on_after(self.patience), guide.scope:
            try:
                call = await user.play(self.leg, guide, tracers=[guide])
                guide.has_facts = guide.has_facts or call.states is not None
                guide.conversation, guide.error = (call, None) if call.error is None else (None, call.error)
            except (MCPError, AssertionError) as raised:
                guide.error = raised
        if guide.mistake is not None:
            raise guide.mistake
        self.has_facts = self.has_facts or guide.has_facts
        self.strayed += guide.has_strayed
        self.used_indexes |= {index for index, reply in enumerate(guide.replies) if reply.take_count}
        self.arrows |= {CallArrow(step.source, step.event, step.target) for step in guide.transitions}
        self.finished_paths.append(self._path(guide))
        before = tuple(item.choice for item in guide.path_questions)
        return [
            (*before[:index], (before[index][0], other))
            for index in range(len(choices), min(len(before), self.depth))
            for other in guide.path_questions[index].others
        ]

    def _path(self, guide: _Guide) -> Path:
        states = guide.conversation.states if guide.conversation is not None else None
        if states is None and guide.has_facts:
            states = [State.RECEIVED, *(step.target for step in guide.transitions)]
            if guide.is_rejected:
                states.append(State.REJECTED)
        outcome, text = self._outcome(guide, states)
        return Path(
            choices=tuple(item.choice for item in guide.path_questions),
            outcome=outcome,
            text=text,
            states=tuple(states) if states is not None else None,
            questions=tuple(item.question for item in guide.path_questions),
            conversation=guide.conversation,
            error=guide.crash or guide.error,
        )

    def _outcome(self, guide: _Guide, states: Sequence[State] | None) -> tuple[PathOutcome, str]:
        conversation, error, crash = guide.conversation, guide.error, guide.crash
        if guide.is_endless:
            return PathOutcome.UNFINISHED, _endless_text(guide.path_questions)
        if crash is not None:
            return PathOutcome.CRASHED, f"{type(crash).__name__}: {crash}"
        if isinstance(error, AssertionError):
            # An AssertionError may also mean that the user gave up because the server never stopped asking.
            if isinstance(error, Breach):
                return PathOutcome.BREACH, str(error)
            questions = guide.path_questions
            return PathOutcome.UNFINISHED, _endless_text(questions) if _repeats(questions) else str(error)
        last = states[-1] if states else None
        if error is not None:
            text = f"{error.error.code} {error.error.message}"
            if is_internal(self.leg, error):
                return PathOutcome.CRASHED, text
            return _OUTCOMES_BY_STATE.get(last, PathOutcome.ERROR), text
        if conversation is None:
            return PathOutcome.UNFINISHED, f"did not end within {self.patience:g} s"
        if not conversation.is_error:
            return PathOutcome.COMPLETED, conversation.text
        if states is None and is_bare_failure(self.leg, conversation.text):
            return PathOutcome.CRASHED, conversation.text
        return _OUTCOMES_BY_STATE.get(last, PathOutcome.FAILED), conversation.text


def _repeats(questions: Sequence[_PathQuestion]) -> bool:
    """Return True if the last two questions are the same form, and the path chose the same action for both."""
    again = [one for one in questions[-2:] if one.choice == questions[-1].choice]
    return len(again) == 2 and isinstance(questions[-1].question.params, ElicitRequestFormParams)


def _endless_text(questions: Sequence[_PathQuestion]) -> str:
    name = questions[-1].choice[0]
    if _repeats(questions):
        return f"keeps asking {name!r}; if its form does not show all rules, put a valid answer into answers="
    return f"still asks after {len(questions)} questions, most recently {name!r}"
