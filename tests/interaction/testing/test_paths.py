"""Explorations of real servers: each path, the table, the covered edges; also of servers that die, lie, or are far."""

from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp_types import InputRequiredResult

from roundtrip import Context, ElicitationResult, State
from roundtrip.testing import (
    DECLINE,
    Answers,
    Breach,
    Era,
    LegDelivery,
    LegRequest,
    PathAction,
    PathOutcome,
    Route,
    Unused,
    paths,
    served,
)
from roundtrip.testing.user_defaults import CURRENT, UserDefaults
from tests.interaction.testing.cinemas import ROOTS, Seat, cinema, outcomes
from tests.kit.shops import server_with

pytestmark = pytest.mark.anyio


ONE_QUESTION = """\
5 paths of 'book', retry era, branching at the first 1 question: 5 completed
left out: other answers beyond depth=1; there, 5 paths only accepted

#  questions                  outcome    states  text
1  seat accept    and 1 more  completed  s1      Solaris, row: front, text
2  seat decline   and 1 more  completed  s1      Solaris, row: decline, text
3  seat cancel    and 1 more  completed  s1      Solaris, row: cancel, text
4  seat invalid   and 2 more  completed  s2      Solaris, row: front, text
5  seat missing   and 2 more  completed  s2      Solaris, row: front, text

states
  s1  received > (resolving > awaiting_input > resumed) x2 > resolving > executing > completed
  s2  received > (resolving > awaiting_input > resumed) x3 > resolving > executing > completed

state-machine edges: 6 of 20 covered
not covered:
  ask      executing > awaiting_input
  revise   executing > resolving
  recall   resolving > completed
  decline  resolving > declined, executing > declined
  reject   received > rejected, awaiting_input > rejected, resolving > rejected, executing > rejected
  fail     received > failed, resolving > failed, awaiting_input > failed, resumed > failed, executing > failed
"""


async def test_table_shows_paths_states_and_edges() -> None:
    assert str(await paths(cinema(), "book", {"film": "Solaris"}, depth=1)) == ONE_QUESTION.rstrip("\n")


async def test_all_ways_through_two_questions_are_gone() -> None:
    explored = await paths(cinema(), "book", {"film": "Solaris"}, depth=2)
    assert explored.outcomes == {PathOutcome.COMPLETED: 25}
    assert {path.choices[:2] for path in explored.paths if path.choices[1][0] != "seat"} == {
        (("seat", one), ("snack", other))
        for one in (PathAction.ACCEPT, PathAction.DECLINE, PathAction.CANCEL)
        for other in PathAction
    }


async def test_path_reports_its_value_states_and_call() -> None:
    explored = await paths(cinema(), "need", {"film": "Solaris"}, depth=1)
    accepted, declined = (explored.paths[place] for place in (0, 1))
    assert accepted.value == {"film": "Solaris", "row": "front"}
    assert accepted.conversation is not None
    assert (accepted.conversation.legs, accepted.states) == (2, tuple(accepted.conversation.states or ()))
    assert declined.outcome is PathOutcome.DECLINED
    assert declined.states is not None
    assert declined.states[-1] is State.DECLINED
    assert explored.outcomes == {PathOutcome.COMPLETED: 3, PathOutcome.DECLINED: 2}
    assert [question.message for question in declined.questions] == ["Which row for Solaris?"]


@pytest.mark.parametrize("tool", ["need", "leave", "survey"])
async def test_both_eras_come_to_the_same_for_the_same_choices(tool: str) -> None:
    arguments = {"film": "Solaris"} if tool == "need" else {}
    retry, live = [
        {path.choices: path for path in (await paths(cinema(), tool, arguments, depth=2, era=era, roots=ROOTS)).paths}
        for era in (Era.RETRY, Era.LIVE)
    ]
    assert live.keys() == {
        choices for choices in retry if all(action is not PathAction.MISSING for _, action in choices)
    }
    for choices, path in live.items():
        other = retry[choices]
        assert (path.outcome, path.text, path.states) == (other.outcome, other.text, other.states)


async def test_a_question_that_only_a_decline_leads_to_is_found(era: Era) -> None:
    explored = await paths(cinema(), "leave", era=era, depth=2)
    told = outcomes(explored)
    assert told["stay accept"] == "completed: accept"
    assert told["stay decline, why accept"] == "completed: left: accept"
    assert told["stay decline, why cancel"] == "completed: left: cancel"
    assert told["stay invalid, stay decline, why accept"] == "completed: left: accept"
    assert ("stay decline, why missing, why accept" in told) is (era is Era.RETRY)


async def test_pages_models_and_roots_are_answered_as_they_can_be() -> None:
    explored = await paths(cinema(), "survey", roots=ROOTS, depth=2)
    told = outcomes(explored)
    assert len(told) == 10
    assert told["page accept, praise missing, praise accept, films accept"] == "completed: accept, text, 1 root"
    assert told["page missing, page decline, praise accept, films accept"] == "completed: decline, text, 1 root"


async def test_a_crash_is_found_and_named() -> None:
    explored = await paths(cinema(), "trap", depth=2)
    (crashed,) = explored.crashed
    assert crashed.choices == (("first", PathAction.DECLINE), ("second", PathAction.CANCEL))
    assert isinstance(crashed.error, KeyError)
    with pytest.raises(AssertionError) as raised:
        explored.assert_no_crash()
    assert str(raised.value) == (
        f"1 of {len(explored.paths)} paths of 'trap' crashed or did not end:\n"
        "  first decline, second cancel\n    KeyError: 'cancel'"
    )
    assert raised.value.__cause__ is crashed.error


async def test_errors_are_outcomes() -> None:
    explored = await paths(cinema(), "broken", {"film": "Solaris"}, depth=1)
    told = outcomes(explored)
    assert told["seat cancel"] == "error: -32050 out of film"
    assert told["seat decline"].startswith("failed: ")
    explored.assert_no_crash()
    assert explored.table().splitlines()[2].endswith("no seat,\\nno \\x1b[31mfilm")


async def test_a_tool_that_asks_for_ever_is_broken_off(era: Era) -> None:
    explored = await paths(cinema(), "nag", era=era, depth=1, questions=7)
    assert {path.outcome for path in explored.paths} == {PathOutcome.UNFINISHED}
    assert {len(path.choices) for path in explored.paths} == {7}
    assert explored.paths[0].text == "still asks after 7 questions, most recently 'sure-7'"
    assert explored.deeper == len(explored.paths) == {Era.RETRY: 5, Era.LIVE: 4}[era]
    with pytest.raises(AssertionError, match="did not end"):
        explored.assert_no_crash()


async def test_rejection_of_invented_content_is_reported() -> None:
    explored = await paths(cinema(), "unlock", depth=1)
    assert explored.paths[0].text.startswith("keeps asking 'code'; if its form does not show all rules, ")
    explored = await paths(cinema(), "unlock", depth=1, answers={"code": {"code": "123-456"}})
    assert explored.paths[0].text == "123-456"


async def test_a_tool_that_hangs_is_broken_off() -> None:
    explored = await paths(cinema(), "hang", depth=1, limit=3, patience=1)
    assert outcomes(explored)["wait cancel"] == "unfinished: did not end within 1 s"


async def test_limit_is_applied_and_its_omissions_are_reported() -> None:
    explored = await paths(cinema(), "book", {"film": "Solaris"}, depth=2, limit=7)
    assert len(explored.paths) == 7
    assert [sum(action is not PathAction.ACCEPT for _, action in path.choices) for path in explored.paths] == [
        *(0, 1, 1, 1, 1),
        *(1, 1),
    ]
    # Those that branch off at the first question have been gone, and not the four branches of each.
    assert explored.left_out == 2 + 4 * 4
    assert "left out: 18 paths or more, because limit=7 was reached" in str(explored)


async def test_each_path_gets_its_own_instance_where_possible() -> None:
    explored = await paths(cinema, "once", depth=1)
    assert {path.text for path in explored.paths} == {"ran"}
    shared = await paths(cinema(), "once", depth=1)
    assert shared.outcomes[PathOutcome.FAILED] == len(explored.paths) - 1


async def test_tool_asking_inconsistently_is_reported() -> None:
    explored = await paths(cinema(), "fickle", depth=1)
    assert explored.strayed == 4
    assert "after the same answers, 4 paths got different questions" in str(explored)


async def test_a_prompt_is_explored_by_its_first_leg() -> None:
    explored = await paths(cinema(), LegRequest("review", {"film": "Solaris"}, method="prompts/get"), depth=1)
    assert [path.text for path in explored.paths][:3] == [
        f"Review Solaris from the row: {action}" for action in ("accept", "decline", "cancel")
    ]


async def test_the_author_says_what_to_accept_with() -> None:
    answers: dict[Any, Any] = {"seat": ["back", "back"], "snack": {"name": "nuts"}}
    explored = await paths(cinema(), "book", {"film": "Solaris"}, answers=answers, depth=1)
    assert explored.paths[0].text == "Solaris, row: back, nuts"
    assert outcomes(explored)["seat invalid, seat accept, snack accept"].endswith("row: back, nuts")


async def test_answers_and_bounds_that_cannot_work_are_rejected() -> None:
    server, arguments = cinema(), {"film": "Solaris"}
    answers: Answers = {"saet": "back"}
    with pytest.raises(Unused, match="no question used 'saet'\n"):
        await paths(server, "book", arguments, answers=answers, depth=1)
    assert await paths(server, "book", arguments, answers=answers, depth=1, allow_unused=True)
    assert await paths(server, "book", arguments, answers=answers, depth=1, limit=2)
    with pytest.raises(ValueError, match="must accept every question, got 'decline' for 'seat'"):
        await paths(server, "book", arguments, answers={"seat": DECLINE})
    with pytest.raises(ValueError, match="limit= and questions= must be at least 1"):
        await paths(server, "book", arguments, limit=0)


def sdk() -> MCPServer[Any]:
    server = MCPServer[Any]("sdk")

    async def row() -> SdkElicit[Seat]:
        return SdkElicit("Which row?", Seat)

    @server.tool()
    async def book(seat: Annotated[ElicitationResult[Seat], SdkResolve(row)]) -> str:
        return {"accept": "booked", "decline": "not booked"}[seat.action]

    return server


async def test_the_sdk_s_own_server_is_explored_without_states() -> None:
    explored = await paths(sdk, "book", depth=1)
    told = [f"{path.choices[0][1]}: {path.outcome}: {path.text}" for path in explored.paths]
    assert told[:3] == [
        "accept: completed: booked",
        "decline: completed: not booked",
        "cancel: crashed: Error executing tool book",
    ]
    assert explored.coverage is None
    assert {path.states for path in explored.paths} == {None}
    assert "states" not in explored.table()
    assert str(explored).endswith("not reported by this server, so its crashes may look like failures")


async def test_a_server_elsewhere_is_explored_without_states(era: Era) -> None:
    async with served(cinema()) as url:
        explored = await paths(url, "need", {"film": "Solaris"}, era=era, depth=1)
    assert explored.coverage is None
    assert explored.outcomes == {PathOutcome.COMPLETED: {Era.RETRY: 3, Era.LIVE: 2}[era], PathOutcome.FAILED: 2}
    assert explored.paths[0].choices[0][0] == {Era.RETRY: "seat", Era.LIVE: "Which row for Solaris?"}[era]


class Strict:
    """A network that reports a breach for a cancelled seat."""

    name = "strict"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        answer = (leg.answers or {}).get("seat")
        if getattr(answer, "action", "") == "cancel":
            raise Breach("it must not be cancelled")
        return await route.onward(leg)


async def test_a_breach_on_a_hostile_network_is_a_crash() -> None:
    before, CURRENT.now = CURRENT.now, UserDefaults(network=(Strict(),))
    try:
        explored = await paths(cinema(), "need", {"film": "Solaris"}, depth=1)
    finally:
        CURRENT.now = before
    (breach,) = explored.crashed
    assert (str(breach), breach.outcome) == ("seat cancel", PathOutcome.BREACH)
    with pytest.raises(AssertionError, match="it must not be cancelled"):
        explored.assert_no_crash()


async def lie(ctx: Context) -> str:
    await ctx.ask_outcome("\x1b[2J" + "long" * 20, "\x1b]0;x\x07", bool)
    raise KeyError("\x1b[31m\u202e\n" + "x" * 500)


async def test_server_text_cannot_take_over_the_terminal() -> None:
    explored = await paths(server_with(lie), "lie")
    assert [line for line in str(explored).splitlines() if not line.isprintable() or len(line) > 120] == []
    with pytest.raises(AssertionError) as raised:
        explored.assert_no_crash()
    assert str(raised.value).replace("\n", "").isprintable()


async def test_endlessly_retrying_server_is_stopped() -> None:
    server = MCPServer[Any]("later")

    @server.tool()
    async def wait() -> str | InputRequiredResult:
        return InputRequiredResult(request_state="later")

    explored = await paths(server, "wait")
    assert explored.paths[0].outcome is PathOutcome.UNFINISHED
    assert "still asks after" in explored.paths[0].text
