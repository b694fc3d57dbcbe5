"""Invariants of every combination: each is a function that raises `AssertionError` if it is broken."""

import contextlib
import io
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from mcp_types import CallToolResult, ElicitRequestURLParams, GetPromptResult, ReadResourceResult

from roundtrip.checking.recorded import recorded_call
from roundtrip.cli import main
from roundtrip.client.legs import LIVES, LegRequest
from roundtrip.testing import Conversation, Era
from roundtrip.testing.clocks import Clock
from roundtrip.testing.networks.deliveries import Breach, LegDelivery
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.networks.network import Route
from roundtrip.trace.reading.calls import TracedCall
from tests.combinations.environment import Environment, Played, serving
from tests.combinations.features import LUGGAGE, OTHER_LUGGAGE, PAGE
from tests.interaction.trace.transcribed import calls_of

__all__ = ["INVARIANTS", "LATER", "Later"]

LINK: Final = "Please answer on this page."
SHORT: Final = 60.0
"""Seconds that a call of the new build may live."""
_LATE: Final = 250.0
_TIMES: Final = 2


def nothing_fails(played: Played) -> None:
    """Require that a call ends in no unexpected error, and that no error is logged."""
    assert not played.call.is_error, played.call.failure
    failures = [line for line in played.logged if line.startswith(("ERROR", "CRITICAL"))]
    assert failures == []


def the_promised_result_comes(played: Played) -> None:
    """Require that the result has the text of each feature."""
    text = result_of(played.call)
    assert text.startswith(f"3 nights for {played.environment.agency.traveller}")
    expected = sum(feature.passage is not None for feature in played.environment.features)
    assert text.count(", ") >= expected
    assert OTHER_LUGGAGE not in text


def effects_are_as_often_as_promised(played: Played) -> None:
    """Require one run of an `exactly_once` body, and on an honest network of every body and step."""
    booked = played.environment.agency.booked
    if played.row.is_exactly_once:
        assert max(booked.values(), default=0) <= 1, booked
    if played.row.over == "stdio":
        return
    assert booked.total() >= 1, f"{played.call.error} {played.call.result}"
    if played.row.is_honest:
        assert booked.total() == 1
        assert played.environment.agency.counted["reservations"] == ("step" in played.row.features)


def what_is_entered_is_left(played: Played) -> None:
    """Require that every entered dependency was exited, regardless of how its leg ended."""
    counted = played.environment.agency.counted
    assert counted["entered"] == counted["left"]
    if "entered" in played.row.features and played.row.over != "stdio":
        assert counted["entered"] > 0


def arguments_that_do_not_fit_are_rejected(played: Played) -> None:
    """Require that invalid arguments are rejected before anything runs or asks."""
    if played.rejected is not None:
        assert played.rejected.error is not None or played.rejected.is_error, played.rejected.result
        assert not played.rejected.questions


def questions_say_what_they_have_to(played: Played) -> None:
    """Require quotes around values, unique page ids, and valid parts of an answer in the repeated form."""
    agency = played.environment.agency
    for question in played.call.questions:
        if question.message.startswith("Book "):
            words = question.message.splitlines()
            assert f'Book 3 nights for "{agency.traveller}"?' in words, words
            assert f'traveller: "{agency.traveller}"' in words, words
        if isinstance(question.params, ElicitRequestURLParams) and PAGE.match(question.message):
            assert question.params.url.startswith("https:"), question.params.url
            # On 2026-07-28 pages have no ids, nor have those that another page shows.
            has_id = played.row.era is Era.LIVE and question.page is None
            assert (question.params.elicitation_id or "").startswith("pay-") is has_id, question
    if "page" in played.row.features and played.row.over != "stdio":
        bound = played.row.subject == "ada"
        assert (agency.counted["no owner of a ticket"] == 0) is bound, "tickets are bound to users alone"
    # A page keeps what was typed, and shows no second form.
    for again in [one for one in played.call.questions if LUGGAGE.match(one.message) and one.page is None][1:]:
        assert again.shown["fields"]["fragile"].get("default") is True, again.shown


def no_value_is_logged(played: Played) -> None:
    """Require that no argument, answer, token, ticket or secret is in a log."""
    logged = [*played.logged_of_rejected, *played.logged]
    found = played.environment.agency.plant.lines_with("\n".join(logged))
    assert not found, found


def no_value_is_readable_in_a_ledger(played: Played) -> None:
    """Require that a ledger outside of this process has sealed values only."""
    kept = b"".join(path.read_bytes() for path in played.environment.folder.glob("calls.db*"))
    assert played.environment.agency.plant.found_in(kept.decode("latin-1")) == set()


def transcripts_keep_what_is_not_revealed(played: Played) -> None:
    """Require that no value is in a transcript that reveals none, and no token or ticket in any."""
    if played.row.trace == "off":
        return
    told = "\n".join(path.read_text() for path in played.environment.folder.glob("*.jsonl*"))
    revealed = frozenset({"argument", "answer", "sample", "once", "step", "done"})
    kept = revealed if played.row.trace == "all" else frozenset[str]()
    assert played.environment.agency.plant.lines_with(told, but=kept) == []


def the_trace_shows_and_explains_it(played: Played) -> None:
    """Require that `trace show` shows the questions, and `trace explain` explains everything unusual."""
    call = _genuine(played)
    if call is None:
        return
    shown = _command("trace", "show", call.id, str(played.environment.transcript))
    for name in {question.name for question in played.call.questions if question.name is not None}:
        assert name in shown, f"{name} is not shown in\n{shown}"
    assert "completed" in shown
    explained = _command("trace", "explain", call.id, str(played.environment.transcript), may_find=True)
    assert explained.strip()


def unchanged_code_is_compatible(played: Played) -> None:
    """Require that `roundtrip check` finds the recording compatible."""
    call = _genuine(played)
    if played.row.trace != "all" or call is None:
        return
    booked = played.environment.agency.booked.copy()
    with serving(played.environment):
        told = _command(
            "check", "--json", "tests.combinations.environment:make", str(played.environment.transcript), may_find=True
        )
    verdicts = {one["call"]: one for one in json.loads(told)}
    verdict = verdicts[call.id]
    # A body that asks and must run once is not begun.
    expected = ("compatible", "not checked")[: 2 if "exactly_once" in played.row.features else 1]
    assert verdict["verdict"] in expected, json.dumps(verdict, indent=1)
    assert played.environment.agency.booked == booked, "a body ran"


def a_fork_comes_to_every_round(played: Played) -> None:
    """Require that `roundtrip trace fork` comes to each recorded round again, and runs no step."""
    call = _genuine(played)
    if played.row.trace != "all" or call is None or played.row.kind != "tool":
        return
    recorded, booked = recorded_call(call, whole=True), played.environment.agency.booked.copy()
    with serving(played.environment):
        for round_ in recorded.rounds:
            if round_.questions or round_.approvals:
                words = ["--server", "tests.combinations.environment:make", "--at", str(round_.number), "--json"]
                told = _command("trace", "fork", call.id, *words, str(played.environment.transcript), may_find=True)
                forked = json.loads(told)
                assert (forked["differs"], forked["fork"]["end"]) == (None, "asks"), json.dumps(forked, indent=1)
    assert played.environment.agency.booked == booked, "a step ran"


async def both_eras_return_the_same(environment: Environment) -> None:
    """Require the same result, questions and states of the same call on both eras, and as a task."""
    row = environment.row
    if row.over == "stdio":
        return
    # A tool that must run once is a task in this row, and nothing else.
    eras = [Era.RETRY, Era.LIVE] if row.task is None else [Era.TASK] if row.is_exactly_once else [*LIVES]
    first, *others = [await environment.call(environment.user(era=era)) for era in eras]
    told = {"results": result_of, "questions": _messages, "forms": _shown, "states": _states}
    if "exactly_once" in row.features or row.has_pages:
        # The retry era has an empty round more where nothing is asked before the body. On the live era, the legs of a
        # page are no legs of the client's call.
        del told["states"]
    for other in others:
        for what, of in told.items():
            one, another = of(first), of(other)
            assert one == another, f"{what} differ:\n  {first.era}: {one}\n  {other.era}:  {another}"


async def a_second_instance_continues_it(environment: Environment) -> None:
    """Require that a call succeeds if each leg is on a new instance, as after a restart."""
    if environment.row.over == "stdio":
        return
    era = Era.RETRY if environment.row.task is None else Era.TASK
    call = await environment.call(environment.user(era=era, network=["restart"]))
    assert result_of(call).startswith("3 nights")


class Rollout:
    """Network on which each request reaches the new build and then the old one, whose tokens the client uses."""

    name = "rollout"

    def __init__(self, make: Make, clock: Clock) -> None:
        self._make = make
        self._clock = clock

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send a leg, and after the end of the call send it again from time to time."""
        await route.fleet.deploy(self._make)
        delivery = await route.onward(leg) if leg.state is not None else None
        await route.fleet.go_to(route.fleet.instances.first())
        if delivery is None or delivery.final is None:
            return await route.onward(leg)
        for _ in range(_TIMES):
            self._clock.advance(_LATE)
            late = await route.onward(leg)
            if late.final != delivery.final:
                raise Breach(f"a late duplicate was answered with {late.told} instead of {delivery.told}")
        return delivery


async def a_late_duplicate_in_a_rollout_runs_nothing(environment: Environment) -> None:
    """Require that a build with a shorter `max_age` keeps the results of another build's calls as long as that one."""
    row = environment.row
    if row.over != "memory" or row.ledger in ("redis", "postgres") or not row.is_exactly_once or row.task is not None:
        return
    with Clock().set() as clock:
        rollout = Rollout(partial(environment.make, ttl=SHORT, max_age=SHORT), clock)
        call = await environment.call(environment.user(era=Era.RETRY, network=[rollout]))
    assert result_of(call).startswith("3 nights")
    assert [*environment.agency.booked.values()] == [1]


Invariant = Callable[[Played], None]
Later = Callable[[Environment], Awaitable[None]]

INVARIANTS: Final[tuple[Invariant, ...]] = (
    nothing_fails,
    the_promised_result_comes,
    effects_are_as_often_as_promised,
    what_is_entered_is_left,
    arguments_that_do_not_fit_are_rejected,
    questions_say_what_they_have_to,
    no_value_is_logged,
    no_value_is_readable_in_a_ledger,
    transcripts_keep_what_is_not_revealed,
    the_trace_shows_and_explains_it,
    unchanged_code_is_compatible,
    a_fork_comes_to_every_round,
)
"""Of what was played."""

LATER: Final[tuple[Later, ...]] = (
    both_eras_return_the_same,
    a_second_instance_continues_it,
    a_late_duplicate_in_a_rollout_runs_nothing,
)
"""Of the same servers, with other calls."""


def result_of(call: Conversation) -> str:
    """Return the text of a booking of any kind."""
    assert not call.is_error, call.failure
    result: Any = call.result
    if isinstance(result, CallToolResult):
        return call.text
    if isinstance(result, GetPromptResult):
        content: Any = result.messages[0].content
        return content.text
    assert isinstance(result, ReadResourceResult)
    contents: Any = result.contents[0]
    return contents.text


def _messages(call: Conversation) -> list[str]:
    # On the retry era, a client that shows links is shown the page's again in each round.
    return [question.message for question in call.questions if question.message != LINK]


def _shown(call: Conversation) -> Any:
    rounds = [[one.shown for one in round_ if one.message != LINK] for round_ in call.rounds]
    return [round_ for round_ in rounds if round_]


def _states(call: Conversation) -> Any:
    return call.states


def _genuine(played: Played) -> TracedCall | None:
    """Return the played call from a transcript that also has the copies of a hostile network."""
    if played.row.trace == "off":
        return None
    # Calls of a lost response and of attacks mostly do not come to their end, and the user's own ends last.
    *_, last = played.environment.agency.booked
    (genuine,) = [call for call in calls_of(played.environment.transcript) if call.id == last]
    return genuine


def _command(*arguments: str, may_find: bool = False) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    assert code in (range(4) if may_find else (0,)), f"{' '.join(arguments)}: {code}\n{out.getvalue()}{err.getvalue()}"
    return out.getvalue()
