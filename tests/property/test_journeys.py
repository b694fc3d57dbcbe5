"""Whole calls as random walks: every leg on a fresh server, every answer a throw of the dice.

Each journey makes a small tool, calls it through a real client, and answers its rounds well, badly or not at all. What
the call remembers crosses from server to server in nothing but its token.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
)

from roundtrip import Event, Server, State
from roundtrip.machine.table import CALL_MACHINE
from roundtrip.testing import Era, LegByLeg
from roundtrip.tracing import TokenRejection
from tests.kit.players import Person, Reply, connect, text_of
from tests.kit.tiers import examples
from tests.property.graphs import Built, Expected, Graph, Kind, accepted, graphs, interpret

KEY = b"k" * 32
ATTEMPTS = 3

REPLIES = st.one_of(
    st.integers(0, 99).map(accepted),
    st.integers(100, 999).map(accepted),
    st.sampled_from(
        [
            ElicitResult(action="decline"),
            ElicitResult(action="cancel"),
            ElicitResult(action="accept"),
            ElicitResult(action="accept", content={"value": "many"}),
        ]
    ),
    st.none(),
)
"""A valid answer, one out of bounds, a refusal, one without content, one of another type, none at all."""


class Journey(RuleBasedStateMachine):
    """One call, from its first leg to its end."""

    @initialize(graph=graphs(most=5), encrypt=st.booleans())
    def begin(self, graph: Graph, encrypt: bool) -> None:
        self.graph = graph
        self.built = Built(graph)
        self.hopper = LegByLeg(lambda: self.server(encrypt))
        self.steps: list[Any] = []
        self.known: dict[str, int | str] = {}
        self.invalid: Counter[str] = Counter()
        self.final: State | None = None
        self.leg({})

    @precondition(lambda self: self.final is not None)
    @rule(graph=graphs(most=5), encrypt=st.booleans())
    def begin_another(self, graph: Graph, encrypt: bool) -> None:
        self.begin(graph, encrypt)

    def server(self, encrypt: bool) -> Server:
        server = Server("journeys", keys=[KEY], encrypt=encrypt, trace=self.steps.append)
        server.add_tool(self.built.tool(), name="tool")
        return server

    def leg(self, answers: dict[str, InputResponse]) -> None:
        first = not self.hopper.rounds
        asked = frozenset(() if first else self.hopper.questions)
        exhausted = self.take(answers, asked)
        before = Counter(self.built.runs)
        self.built.log.clear()
        state = None if first else self.hopper.token
        result = anyio.run(lambda: self.hopper.leg("tool", answers=None if first else answers, state=state))
        self.compare(result, exhausted, asked, self.built.runs - before)
        self.compare_log(result)

    def take(self, answers: dict[str, InputResponse], asked: frozenset[str]) -> bool:
        """Note the answers that must count, and return True if a question was answered invalidly too often."""
        for key, answer in answers.items():
            if key not in asked or not isinstance(answer, ElicitResult):
                continue
            value = (answer.content or {}).get("value")
            if answer.action != "accept":
                self.known[key] = answer.action
            elif isinstance(value, int) and value <= 99:
                self.known[key] = value
            else:
                self.invalid[key] += 1
        return any(count >= ATTEMPTS for count in self.invalid.values())

    def compare(
        self,
        result: CallToolResult | InputRequiredResult,
        exhausted: bool,
        asked: frozenset[str],
        runs: Counter[str],
    ) -> None:
        expected = interpret(self.graph, self.known)
        assert all(count == 1 for count in runs.values()), "a node ran twice on one leg"
        if exhausted or expected.end is Expected.REFUSED:
            assert isinstance(result, CallToolResult)
            assert result.is_error
            text = text_of(result)
            assert ("answered invalidly" in text) <= exhausted
            assert ("could not resolve" in text) <= (expected.end is Expected.REFUSED)
            self.final = State.FAILED if "answered invalidly" in text else State.DECLINED
        elif expected.end is Expected.ASKED:
            assert isinstance(result, InputRequiredResult)
            assert frozenset(result.input_requests or {}) == expected.questions
            assert not expected.questions & self.known.keys(), "an accepted answer was asked for again"
        else:
            assert not isinstance(result, InputRequiredResult)
            assert text_of(result) == expected.text
            self.final = State.COMPLETED

    def compare_log(self, result: CallToolResult | InputRequiredResult) -> None:
        """Check that what a leg opened was closed in reverse order, and was told how the leg ended."""
        half = len(self.built.log) // 2
        opened = [line.removeprefix("open ") for line in self.built.log[:half]]
        closed = [line.removeprefix("close ").split(": ") for line in self.built.log[half:]]
        assert [place for place, _ in closed] == opened[::-1]
        ends = {end for _, end in closed}
        if isinstance(result, InputRequiredResult):
            assert ends <= {"Suspension"}
        elif self.final is State.COMPLETED:
            assert ends <= {"done"}
        else:
            assert ends.isdisjoint({"done", "Suspension"})

    @precondition(lambda self: self.final is None)
    @rule(
        replies=st.data(), unasked=st.dictionaries(st.sampled_from(["n0", "n1", "n4", "else", ""]), REPLIES, max_size=2)
    )
    def answer(self, replies: Any, unasked: dict[str, ElicitResult | None]) -> None:
        thrown = unasked | {key: replies.draw(REPLIES, label=key) for key in sorted(self.hopper.questions)}
        self.leg({key: reply for key, reply in thrown.items() if reply is not None})

    @precondition(lambda self: self.final is None)
    @rule(values=st.lists(st.integers(0, 99), min_size=5, max_size=5))
    def answer_all_well(self, values: list[int]) -> None:
        self.leg({key: accepted(value) for key, value in zip(sorted(self.hopper.questions), values, strict=False)})

    @precondition(lambda self: self.final is None)
    @rule(place=st.floats(0, 1, exclude_max=True), char=st.sampled_from("AZaz09-_.="))
    def tamper(self, place: float, char: str) -> None:
        token = self.hopper.token
        spot = int(place * len(token))
        changed = token[:spot] + char + token[spot + 1 :]
        if changed == token:
            return
        runs, legs = Counter(self.built.runs), len(self.steps)
        with pytest.raises(MCPError) as caught:
            anyio.run(lambda: self.hopper.leg("tool", answers={}, state=changed))
        assert caught.value.code == INVALID_PARAMS
        assert caught.value.message == "Invalid or expired requestState"
        assert self.built.runs == runs
        assert [type(fact) for fact in self.steps[legs:]] == [TokenRejection]
        del self.steps[legs:]

    @invariant()
    def every_step_is_an_arrow_of_the_table(self) -> None:
        assert all(CALL_MACHINE.follow(step.source, step.event) is step.target for step in self.steps)

    @invariant()
    def the_steps_make_one_path_over_all_servers(self) -> None:
        assert len({step.call_id for step in self.steps}) == 1
        assert self.steps[0].source is State.RECEIVED
        for one, next_ in pairwise(self.steps):
            assert next_.source is one.target
            assert next_.leg == one.leg + (one.target is State.AWAITING_INPUT)
            assert next_.round == one.round + (next_.event is Event.ASK)
        last = self.steps[-1].target
        assert last is (self.final or State.AWAITING_INPUT)
        assert (last in CALL_MACHINE.final) == (self.final is not None)

    @invariant()
    def the_body_runs_once_in_a_call_that_completes_and_never_in_another(self) -> None:
        assert self.built.runs["body"] == (self.final is State.COMPLETED)

    @invariant()
    def what_once_computed_is_computed_once(self) -> None:
        for place, spec in enumerate(self.graph.nodes):
            if spec.once and spec.kind is not Kind.ASKING:
                assert self.built.runs[f"n{place}"] <= 1


ANSWERS = st.dictionaries(st.integers(0, 5), st.integers(0, 99) | st.sampled_from(["decline", "cancel"]))


@settings(max_examples=examples(60), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(most=6), answers=ANSWERS)
def test_both_eras_do_what_the_interpreter_says(graph: Graph, answers: dict[int, int | str]) -> None:
    known = {f"n{place}": answers.get(place, place) for place in range(len(graph.nodes))}

    def reply(params: ElicitRequestFormParams) -> Reply:
        answer = known[f"n{params.message.partition('(')[0]}"]
        return answer if isinstance(answer, str) else {"value": answer}

    async def play(era: Era) -> str:
        server, built = Server("graphs"), Built(graph)
        server.add_tool(built.tool(), name="tool")
        async with connect(server, era, Person(answer=reply)) as client:
            result = await client.call_tool("tool")
        assert built.runs["body"] == (not result.is_error)
        return "refused" if result.is_error else text_of(result)

    expected = interpret(graph, known)
    wanted = "refused" if expected.end is Expected.REFUSED else expected.text
    assert [anyio.run(play, era) for era in (Era.RETRY, Era.LIVE)] == [wanted] * 2


TestJourneys = Journey.TestCase
TestJourneys.settings = settings(
    max_examples=examples(40),
    stateful_step_count=8,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
