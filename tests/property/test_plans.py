"""Random graphs, walked: the same values as a plain interpreter's, and every node run exactly once."""

from collections import Counter
from itertools import cycle
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.machine.journal import Action
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.node_outcomes import NodeOutcomes
from roundtrip.resolvers.plan import Node
from roundtrip.resolvers.planner import make_plan
from roundtrip.resolvers.scheduler import Scheduler
from tests.kit.tiers import examples
from tests.property.graphs import Answer, Built, Expected, Graph, graphs, interpret

ANSWERS = st.one_of(st.integers(0, 99), st.sampled_from(["decline", "cancel"]))


class Replies(NodeOutcomes):
    """Answers that are known beforehand, for as many questions as are allowed to see theirs."""

    def __init__(self, answers: dict[str, int | str]) -> None:
        self._answers = answers
        self.kept: dict[str, Outcome] = {}
        self.given: Counter[str] = Counter()

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        del marker
        answer = self._answers.get(node.key)
        if answer is None:
            return None
        self.given[node.key] += 1
        if isinstance(answer, int):
            return Outcome(Answer(value=answer))
        return Outcome(action=Action.DECLINE if answer == "decline" else Action.CANCEL)

    def recall(self, node: Node) -> Outcome | None:
        return self.kept.get(node.key)

    def remember(self, node: Node, value: Any) -> None:
        self.kept[node.key] = Outcome(value)


async def walked(built: Built, guess: list[bool], replies: Replies) -> tuple[Scheduler, dict[str, Any], Any]:
    tool = built.tool()
    plan = make_plan(tool, owner="tool", arguments={}, context_types=())
    plan.never_suspended[:] = [flag for flag, _ in zip(cycle(guess), plan.nodes, strict=False)]
    walk = Scheduler(
        plan,
        arguments={},
        context=lambda: None,
        outcomes=replies,
    )
    values: dict[str, Any] = {}
    with anyio.fail_after(20):
        await walk.advance()
        if walk.declined is None and not walk.waiting:
            walk.fill(values)
    return walk, values, tool


@settings(max_examples=examples(150), deadline=None, database=None)
@given(
    graph=graphs(most=10),
    answers=st.dictionaries(st.integers(0, 9), ANSWERS),
    guess=st.lists(st.booleans(), min_size=1),
)
def test_scheduler_agrees_with_the_interpreter_and_runs_nodes_once(
    graph: Graph, answers: dict[int, int | str], guess: list[bool]
) -> None:
    known = {f"n{place}": answer for place, answer in answers.items()}

    async def compare() -> None:
        built, replies = Built(graph), Replies(known)
        walk, values, tool = await walked(built, guess, replies)
        expected = interpret(graph, known)
        assert all(count == 1 for count in built.runs.values())
        assert all(count == 1 for count in replies.given.values())
        if walk.declined is not None:
            assert expected.end is Expected.REFUSED
            return
        asked = [node.key for node in walk.waiting_nodes()]
        assert expected.end is (Expected.ASKED if asked else Expected.DONE)
        assert frozenset(asked) == expected.questions
        assert asked == [node.key for node in sorted(walk.waiting_nodes(), key=lambda node: node.index)]
        assert set(built.runs) == expected.ran
        if not asked:
            assert await tool(**values) == expected.text

    anyio.run(compare)


@settings(max_examples=examples(60), deadline=None, database=None)
@given(graph=graphs(asking=False, most=12), guess=st.lists(st.booleans(), min_size=1))
def test_graph_without_questions_gives_equal_values_every_time(graph: Graph, guess: list[bool]) -> None:
    async def compare() -> None:
        for _ in range(2):
            built = Built(graph)
            _, values, tool = await walked(built, guess, Replies({}))
            assert await tool(**values) == interpret(graph, {}).text
            assert built.runs == Counter({**dict.fromkeys(interpret(graph, {}).ran, 1), "body": 1})

    anyio.run(compare)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(graph=graphs(most=12))
def test_plan_lists_each_node_after_its_requirements(graph: Graph) -> None:
    plan = make_plan(Built(graph).tool(), owner="tool", arguments={}, context_types=())
    assert {node.key for node in plan.nodes} == {f"n{place}" for place in graph.reached}
    for node in plan.nodes:
        assert all(need < node.index for need in node.needs)
        assert all(node.index in plan.nodes[need].dependents for need in node.needs)
        assert (node.consumer is not None) == (int(node.key[1:]) in graph.decisive)
    again = make_plan(Built(graph).tool(), owner="tool", arguments={}, context_types=())
    assert again.fingerprint == plan.fingerprint
