"""Rounds of questions and answers without a server: each is a fresh `Answers` over the journal of the one before."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from mcp_types import ElicitResult, InputResponse

from roundtrip import Resolve
from roundtrip.engine.answers import Answers
from roundtrip.engine.leg import Leg
from roundtrip.engine.ports import Ports
from roundtrip.machine.call import Call
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Asked, Entry, Journal
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.annotations import find_resolved
from roundtrip.resolvers.plan import Node, Plan
from roundtrip.resolvers.planner import make_plan
from tests.kit.secrets import journals


def yes(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


DECLINE = ElicitResult(action="decline")


def plan_of(**filled: Any) -> Plan:
    """Return the plan of a tool whose parameters are filled by functions, or by markers around them."""

    def tool() -> None: ...

    resolved = {name: (what if isinstance(what, Resolve) else Resolve(what), False) for name, what in filled.items()}
    return make_plan(tool, owner="tool 'order'", arguments={}, context_types=(), resolved=resolved)


def alone(asking: Callable[..., Any], **options: Any) -> Plan:
    """Return the plan of a tool with one resolver."""

    def tool(value: Annotated[Any, Resolve(asking, **options)]) -> None: ...

    return make_plan(tool, owner="tool 'order'", arguments={}, context_types=(), resolved=find_resolved(tool))


def answers_of(plan: Plan, journal: Journal | None = None, *, build: str = "b1", watch: Watch | None = None) -> Answers:
    """Return the answers of a leg, none of whose ports are used."""
    unused: Any = None
    call = Call("call-1" if journal is None else journal.call_id, watch=watch)
    leg = Leg(
        call, plan, unused, 0.0, 3600.0, unused, unused, unused, unused, unused, Ports(), build=build, journal=journal
    )
    return Answers(leg)


class Rounds:
    """Call whose every `round` is a leg: it delivers answers, settles the given questions, and writes the journal."""

    def __init__(self, plan: Plan, *, build: str = "b1") -> None:
        self.plan = plan
        self.build = build
        self.journal: Journal | None = None
        self.answers = answers_of(plan, build=build)

    def node(self, key: str) -> Node:
        return self.plan.nodes[self.plan.names[key]]

    def round(
        self, questions: Mapping[str, Marker], responses: Mapping[str, InputResponse | None] | None = None
    ) -> dict[str, Outcome | None]:
        """Return the outcomes of questions on this leg. Remembered nodes look for a kept value first, as in a walk."""
        answers = self.answers = answers_of(self.plan, self.journal, build=self.build)
        if self.journal is not None:
            answers.deliver(responses or {}, self.journal.asked)
        outcomes: dict[str, Outcome | None] = {}
        for key, marker in questions.items():
            node = self.node(key)
            outcomes[key] = (answers.recall(node) if node.remember else None) or answers.settle(node, marker)
        while answers.open and answers.known.adopt(answers.open, lambda index: False):
            for key in list(answers.open):
                outcomes[key] = answers.settle(self.node(key), questions[key])
        answers.judge_volatile()
        # Through the bytes and back: what a journal cannot hold does not count.
        codec = journals()
        self.journal = codec.read(codec.write(self._journal(answers)))
        return outcomes

    def redeploy(self, plan: Plan, *, build: str = "b2") -> None:
        """Let the next leg land on another build."""
        self.plan = plan
        self.build = build

    @property
    def asked(self) -> Mapping[str, Asked]:
        """Return the questions that are out after the last leg."""
        assert self.journal is not None
        return self.journal.asked

    @property
    def entries(self) -> Mapping[str, Entry]:
        assert self.journal is not None
        return self.journal.entries

    def reason(self, key: str) -> str:
        return self.answers.open[key].reason

    def _journal(self, answers: Answers) -> Journal:
        before = self.journal
        return Journal(
            call_id="call-1",
            born=0.0,
            deadline=600.0,
            end=3600.0,
            leg=before.leg + 1 if before is not None else 1,
            round=before.round + 1 if before is not None else 1,
            build=self.build,
            entries=answers.known.entries_to_write(),
            asked=answers.known.foreign_asked() | {key: waiting.asked for key, waiting in answers.open.items()},
            computed=answers.computed.values,
        )
