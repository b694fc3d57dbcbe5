"""Explore the questions of a tool: each combination of replies is played as a call of its own."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, Root

from roundtrip.client.legs import Era, LegRequest
from roundtrip.machine.table import CallArrow, State
from roundtrip.testing.exploration.explored import Coverage, Explored, Path, PathAction, PathOutcome
from roundtrip.testing.exploration.guides import Contents, Guide, Met, Way
from roundtrip.testing.networks.fleet import Target
from roundtrip.testing.networks.network import Breach, is_bare_failure, is_internal
from roundtrip.testing.scripts import AnswersBy, MatcherT
from roundtrip.testing.users import PageT, User
from roundtrip.testing.visits import VisitsBy

__all__ = ["paths"]

_ORDER: Final = list(PathAction)
_FINAL: Final[Mapping[State | None, PathOutcome]] = {
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
    depth: int = 3,
    limit: int = 500,
    era: Era | None = None,
    roots: Sequence[Root] | None = None,
    questions: int = 30,
    patience: float = 30,
    allow_unused: bool = False,
) -> Explored:
    """Play every path through a tool's questions, and report each one.

    The first path accepts everything. Each of the first `depth` questions of a path is then also declined, cancelled,
    answered with invalid content, and left unanswered, as far as its kind and the era allow. The questions that follow
    are treated alike. Each path is a whole call. An error or a crash of the server is an outcome of its path, and is
    not raised.

    Args:
        server: As for `User`. A function that makes the server is called for each path.
        tool: The tool's name, or the first leg of a call of any method.
        arguments: The tool's arguments.
        answers: Contents to accept forms with, as for `User`; by default the simplest content that fits.
        visits: Visits of pages, as for `User`; without them, a path that agrees to open a page does not finish.
        depth: The number of questions of a path at which others branch off.
        limit: The highest number of paths; those with the fewest deviations come first.
        era: As for `User`.
        roots: As for `User`.
        questions: The highest number of questions of a path, which is stopped at the next one.
        patience: Seconds that a path may take.
        allow_unused: Allow answers that no path needed. They are also allowed if the limit left out paths.

    Raises:
        ValueError: `answers` has no content for a form, and none can be derived from its schema.
        Unused: No path needed some of the answers.

    Example:
        ```python
        explored = await paths(make_server, "book", {"film": "Solaris"})
        explored.assert_no_crash()
        ```
    """
    if depth < 0 or limit < 1 or questions < 1:
        raise ValueError("depth= must be at least 0, limit= and questions= at least 1")
    leg = tool if isinstance(tool, LegRequest) else LegRequest(tool, dict(arguments or {}))
    exploration = _Exploration(
        server, leg, Contents(answers or {}), visits or {}, depth, era, roots, questions, patience
    )
    waiting: deque[Way] = deque([()])
    while waiting and len(exploration.gone) < limit:
        waiting.extend(await exploration.go(waiting.popleft()))
    if not waiting and not allow_unused:
        exploration.contents.check_all_used(exploration.gone)
    return Explored(
        name=leg.name,
        era=exploration.user().era,
        depth=depth,
        limit=limit,
        paths=tuple(sorted(exploration.gone, key=lambda path: [_ORDER.index(action) for _, action in path.choices])),
        left_out=len(waiting),
        strayed=exploration.strayed,
        coverage=Coverage.of(exploration.arrows) if exploration.told else None,
    )


@dataclass(slots=True)
class _Exploration:
    """The settings and the results of one exploration."""

    server: Target
    leg: LegRequest
    contents: Contents
    visits: Mapping[Any, Any]
    depth: int
    era: Era | None
    roots: Sequence[Root] | None
    questions: int
    patience: float
    gone: list[Path] = field(default_factory=list[Path])
    strayed: int = 0
    arrows: set[CallArrow] = field(default_factory=set[CallArrow])
    told: bool = False

    def user(self) -> User:
        """Return the user of one path; of a function that makes servers, each user makes its own."""
        return User(
            self.server, visits=self.visits, era=self.era, roots=self.roots, allow_error=True, allow_unused=True
        )

    async def go(self, way: Way) -> list[Way]:
        """Play one path, and return the paths that branch off it."""
        user = self.user()
        guide = Guide(way, self.contents, user.era, self.roots or (), self.depth, self.questions)
        with anyio.move_on_after(self.patience), guide.scope:
            try:
                call = await user.play(self.leg, guide, tracers=[guide])
                guide.told = guide.told or call.states is not None
                guide.conversation, guide.error = (call, None) if call.error is None else (None, call.error)
            except (MCPError, AssertionError) as raised:
                guide.error = raised
        if guide.mistake is not None:
            raise guide.mistake
        self.told = self.told or guide.told
        self.strayed += guide.strayed
        self.arrows |= {CallArrow(step.source, step.event, step.target) for step in guide.steps}
        self.gone.append(self._path(guide))
        before = tuple(met.choice for met in guide.met)
        return [
            (*before[:place], (before[place][0], other))
            for place in range(len(way), min(len(before), self.depth))
            for other in guide.met[place].others
        ]

    def _path(self, guide: Guide) -> Path:
        states = guide.conversation.states if guide.conversation is not None else None
        if states is None and guide.told:
            states = [State.RECEIVED, *(step.target for step in guide.steps)]
            if guide.rejected:
                states.append(State.REJECTED)
        outcome, text = self._outcome(guide, states)
        return Path(
            choices=tuple(met.choice for met in guide.met),
            outcome=outcome,
            text=text,
            states=tuple(states) if states is not None else None,
            questions=tuple(met.question for met in guide.met),
            conversation=guide.conversation,
            error=guide.crash or guide.error,
        )

    def _outcome(self, guide: Guide, states: Sequence[State] | None) -> tuple[PathOutcome, str]:
        conversation, error, crash = guide.conversation, guide.error, guide.crash
        if guide.endless:
            return PathOutcome.UNFINISHED, _endless(guide.met)
        if crash is not None:
            return PathOutcome.CRASHED, f"{type(crash).__name__}: {crash}"
        if isinstance(error, AssertionError):
            # A user also gives up if the server has it try again without end.
            if isinstance(error, Breach):
                return PathOutcome.BREACH, str(error)
            return PathOutcome.UNFINISHED, _endless(guide.met) if _repeats(guide.met) else str(error)
        last = states[-1] if states else None
        if error is not None:
            text = f"{error.error.code} {error.error.message}"
            if is_internal(self.leg, error):
                return PathOutcome.CRASHED, text
            return _FINAL.get(last, PathOutcome.ERROR), text
        if conversation is None:
            return PathOutcome.UNFINISHED, f"no end after {self.patience:g} seconds"
        if not conversation.is_error:
            return PathOutcome.COMPLETED, conversation.text
        if states is None and is_bare_failure(self.leg, conversation.text):
            return PathOutcome.CRASHED, conversation.text
        return _FINAL.get(last, PathOutcome.FAILED), conversation.text


def _repeats(met: Sequence[Met]) -> bool:
    """Return True if a form was answered the same way twice at the end."""
    again = [one for one in met[-2:] if one.choice == met[-1].choice]
    return len(again) == 2 and isinstance(met[-1].question.params, ElicitRequestFormParams)


def _endless(met: Sequence[Met]) -> str:
    name = met[-1].choice[0]
    if _repeats(met):
        return f"asks {name!r} again and again: if its form says not all, answers= must have what to accept with"
    return f"still asks after {len(met)} questions, the last {name!r}"
