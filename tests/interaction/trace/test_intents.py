"""Calls of tools with `once_per=` in traces: which request began the call, which joined it, and which got its end."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip import Context, Elicit, Recorder, Resolve, Server, ToolError
from roundtrip.checking.checking import check_calls
from roundtrip.checking.reports import CheckResult
from roundtrip.cli import main
from roundtrip.ledger import Ledger, MemoryLedger
from roundtrip.server.attach import Attached
from roundtrip.testing import ACCEPT, DECLINE, Era, LegByLeg, User
from roundtrip.trace.explaining.explanations import explain
from roundtrip.trace.explaining.sequence import mermaid
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import TracedCall
from tests.interaction.trace.projects import Project
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

ANSWERS = {"title": "Dune", "copies": 2, "gift": True}
BOOKED = "order 7: 2 x Dune, gift True, number 1"
SHOP = """\
from typing import Annotated

from roundtrip import Context, Elicit, Resolve, Server

server = Server("shop", keys=[b"k" * 32])
RAN: list[str] = []


async def title() -> Elicit[str]:
    return Elicit("Which book?", str)


@server.tool(once_per="{number}")
async def order(number: int, title: Annotated[str, Resolve(title)], ctx: Context, note: str = "") -> str:
    copies = await ctx.ask("copies", "How many?", int)
    taken = await ctx.step("take", lambda: RAN.append(title) or len(RAN))
    gift = await ctx.ask("gift", "A gift?", bool)
    return f"order {number}: {copies} x {title}, gift {gift}, number {taken}"
"""


async def title() -> Elicit[str]:
    return Elicit("Which book?", str)


def shop(path: Path | None, ledger: Ledger, keys: Any = (KEY,)) -> Server[Any]:
    trace = Recorder(path, reveal="all", instance="one") if path is not None else None
    server = Server("shop", keys=keys, ledger=ledger, trace=trace)
    taken: list[str] = []

    @server.tool(once_per="{number}")
    async def order(number: int, title: Annotated[str, Resolve(title)], ctx: Context, note: str = "") -> str:
        copies = await ctx.ask("copies", "How many?", int)
        number_taken = await ctx.step("take", lambda: taken.append(title) or len(taken))
        gift = await ctx.ask("gift", "A gift?", bool)
        return f"order {number}: {copies} x {title}, gift {gift}, number {number_taken}"

    @server.tool(once_per="{number}", confirm="Cancel order {number}?")
    async def cancel(number: int) -> str:
        if number == 0:
            raise ToolError("there is no order 0")
        return "cancelled"

    return server


@pytest.fixture
def make(path: Path) -> Any:
    return partial(shop, path, MemoryLedger())


def views(
    call: TracedCall, path: Path, capsys: pytest.CaptureFixture[str], *, failed: bool = False
) -> tuple[str, str, dict[str, Any]]:
    """Return a call as `show`, `explain` and `show --json` print it."""
    printed: list[str] = []
    for view in (["show"], ["explain"], ["show", "--json"]):
        assert main(["trace", *view, call.id, str(path)]) == (1 if failed and view == ["explain"] else 0)
        printed.append(capsys.readouterr().out)
    return printed[0], " ".join(printed[1].split()), json.loads(printed[2])


async def in_order(make: Any, answers: dict[str, Any], **arguments: Any) -> CallToolResult:
    """Play a client that begins again for each answer, and gives its earlier answers again in order."""
    given: list[Any] = []
    while True:
        legs, place = LegByLeg(make, principal="ann"), 0
        result = await legs.leg("order", arguments)
        while not isinstance(result, CallToolResult):
            (key,) = legs.questions
            if place == len(given):
                given.append(answers[key])
                break
            result = await legs.leg("order", arguments, answers={key: given[place]}, state=legs.token)
            place += 1
        else:
            return result


async def test_end_that_is_recalled_names_the_call(
    make: Any, path: Path, era: Era, capsys: pytest.CaptureFixture[str]
) -> None:
    users = [User(make, answers, era=era, principal="ann") for answers in (ANSWERS, {})]
    first, second = [await user.call("order", number=7) for user in users]
    assert first.value == second.value == BOOKED
    assert second.names == []
    began, recalled = calls_of(path)
    text, explained, story = views(recalled, path, capsys)
    assert f"recalled the end of call '{began.id}'\n" in text
    assert f"served as leg 1 recalled the end of call '{began.id}'" in explained
    assert "and nothing ran; nothing needs to be fixed." in explained
    assert story["servings"][0]["intent"]["recalled_from"] == began.id
    assert ["Intent", f"recalled the end of call '{began.id}'"] in data_of(recalled)["steps"][0]["facts"]
    assert main(["trace", "ls", "--json", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["call"]: row["recalled"] for row in rows} == {began.id: False, recalled.id: True}
    assert main(["trace", "ls", str(path)]) == 0
    assert capsys.readouterr().out.count("completed, recalled") == 1
    text, explained, story = views(began, path, capsys)
    assert "recalled the end" not in text
    assert "joined" not in text
    assert explained.startswith("Nothing to explain")
    assert [one["intent"]["how"] for one in story["servings"]] == ["began", "continued", "continued", "continued"]


async def test_live_call_has_a_leg_for_each_round(make: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await User(make, ANSWERS, era=Era.LIVE, principal="ann").call("order", number=7)
    (call,) = calls_of(path)
    assert_path_is_in_the_table(call)
    assert (call.legs, call.round_count, len(call.rounds), call.replay_count) == (4, 3, 3, 0)
    assert [round_.answered_at is not None for round_ in call.rounds] == [True] * 3
    assert [[read.key for read in round_.answers] for round_ in call.rounds] == [["title"], ["copies"], ["gift"]]
    text, explained, _ = views(call, path, capsys)
    assert "asked again" not in text
    assert explained.startswith("Nothing to explain")
    drawn = mermaid(call)
    assert "    p1->>p0: asks copies" in drawn
    assert "    p0-->>p1: answers with copies: accept" in drawn
    assert "retry" not in drawn


async def test_client_that_begins_again_is_not_blamed(
    make: Any, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = await in_order(make, ANSWERS, number=7)
    assert result.structured_content == {"result": BOOKED}
    (call,) = calls_of(path)
    assert_path_is_in_the_table(call)
    assert call.replay_count == 0
    text, explained, _ = views(call, path, capsys)
    assert text.count("joined the call that another request began\n") == 3
    assert "'title' was asked again in round 2, because its request joined the call that another request" in explained
    again = (
        "because the client began the call again, and a client that does so gives its earlier answers again in order"
    )
    assert explained.count(again) == 3
    assert "because the client began the call again while the question was open" in explained
    assert "came back without an answer" not in explained
    assert "the call continued without an answer" not in explained
    assert "p1: joined the call that another request began" in mermaid(call)
    # The round without its own answer is not the one that was answered.
    answered = [[read.key for read in round_.answers] for round_ in call.rounds]
    assert answered == [[], ["title"], [], [], ["copies"], [], [], [], ["gift"]]


async def test_client_that_truly_left_an_answer_out_is_told_so(make: Any, path: Path) -> None:
    await LegByLeg(make, principal="ann").leg("order", {"number": 7})
    legs = LegByLeg(make, principal="ann")
    await legs.leg("order", {"number": 7})
    await legs.leg("order", {"number": 7}, answers={}, state=legs.token)
    (call,) = calls_of(path)
    texts = [one.text for one in explain(call) if one.key == "title"]
    assert "joined the call" in texts[1]
    assert "because the client came back without an answer to it" in texts[2]


async def test_answer_that_came_second_is_explained(make: Any, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = LegByLeg(make, principal="ann"), LegByLeg(make, principal="ann")
    for legs in (one, two):
        await legs.leg("order", {"number": 7})
    for legs, answer in ((one, "Dune"), (two, "Emma")):
        await legs.leg("order", {"number": 7}, answers={"title": answer}, state=legs.token)
    (call,) = calls_of(path)
    assert (call.state, call.replay_count) == ("awaiting_input", 0)
    assert [[read.key for read in round_.answers] for round_ in call.rounds] == [["title"], [], []]
    text, explained, _ = views(call, path, capsys, failed=True)
    assert "joined the call that another request continued after leg 1\n" in text
    assert (
        "another request with the same intent (once_per=) had answered first, or had answered a question" in explained
    )
    assert "so its answers count only where no other answer had come first" in explained


async def test_two_requests_with_equal_answers_are_no_replays(make: Any, path: Path) -> None:
    one, two = LegByLeg(make, principal="ann"), LegByLeg(make, principal="ann")
    for legs in (one, two):
        await legs.leg("cancel", {"number": 7})
    for legs in (one, two):
        await legs.leg("cancel", {"number": 7}, answers={"confirm:cancel": ACCEPT}, state=legs.token)
    calls = calls_of(path)
    assert [call.replays for call in calls] == [[]]
    assert not any("served again" in explained.text for call in calls for explained in explain(call))


@pytest.mark.parametrize(
    ("arguments", "principal", "says"),
    [
        ({"number": 7, "note": "soon"}, "ann", "another call has the same intent (once_per=), with other arguments"),
        ({"number": 7}, None, "each caller has intents of their own (once_per=), and the server does not know who"),
    ],
)
async def test_request_that_its_intent_ended_is_explained_and_no_alarm(
    make: Any, path: Path, arguments: dict[str, Any], principal: str | None, says: str, era: Era
) -> None:
    await User(make, ANSWERS, era=era, principal="ann").call("order", number=7)
    await User(make, era=era, principal=principal, allow_error=True).call("order", **arguments)
    ended, failed = calls_of(path)
    assert says in " ".join(one.text for one in explain(failed))
    assert [result.call for result in await checked(path)] == [ended.id]


async def test_decline_and_error_that_are_recalled_name_the_call(make: Any, path: Path, era: Era) -> None:
    for number, reply in ((1, DECLINE), (0, ACCEPT)):
        for answers in ({"confirm:cancel": reply}, None):
            call = await User(make, answers, era=era, principal="ann").call("cancel", number=number)
            assert call.is_error
    declined, again, failed, again_failed = calls_of(path)
    for recalled, earlier in ((again, declined), (again_failed, failed)):
        (serving,) = recalled.servings
        assert serving.intent is not None
        assert (serving.intent.how, serving.intent.recalled_from) == ("recalled", earlier.id)
        assert f"because it recalled the end of call '{earlier.id}'" in explain(recalled)[-1].text
    assert [result.call for result in await checked(path)] == [declined.id, failed.id]


async def checked(path: Path) -> list[CheckResult]:
    """Check all recorded calls on a server whose ledger has none of their intents."""
    results: list[CheckResult] = []
    server = shop(None, MemoryLedger())
    internals = server.internals
    assert isinstance(internals, Attached)
    await check_calls(internals, calls_of(path), results.append, now=0.0)
    assert [result.divergences for result in results] == [[] for _ in results]
    return results


async def test_joined_call_is_checked_with_its_answers_wherever_they_came_from(make: Any, path: Path) -> None:
    await in_order(make, ANSWERS, number=7)
    one, two = LegByLeg(make, principal="ann"), LegByLeg(make, principal="ann")
    for legs in (one, two):
        await legs.leg("order", {"number": 8})
    await one.leg("order", {"number": 8}, answers={"title": "Dune"}, state=one.token)
    await two.leg("order", {"number": 8}, answers={"title": "Dune"}, state=two.token)
    await User(make, {"copies": 2, "gift": True}, era=Era.LIVE, principal="ann").call("order", number=8)
    results = await checked(path)
    assert len(results) == 2
    for result in results:
        assert result.again == []
        assert "the body must run only once" in (result.not_checked or "")


def command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main(["trace", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_forks_and_tests_of_joined_and_recalled_calls(
    make: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    for answers in (ANSWERS, {}):
        anyio.run(partial(in_order, make, answers, number=7))
    joined, recalled = calls_of(path)
    told = f"nothing ran in it, because it got the end of call '{joined.id}'; choose that call"
    for words in (["fork", recalled.id, "--at", "1"], ["to-test", recalled.id]):
        code, _, error = command(capsys, *words, "--server", "shop:server", path)
        assert code == 2
        assert told in error
    last = joined.rounds[-1].number
    code, shown, _ = command(capsys, "fork", joined.id, "--at", str(last), "--server", "shop:server", path)
    assert code == 0
    assert "'gift' 'A gift?'" in shown
    assert 'recorded: {"value": true}' in shown
    code, source, _ = command(capsys, "to-test", joined.id, "--server", "shop:server", path)
    assert code == 0
    assert 'ANSWERS: list[dict[str, Any]] = [{"title": {"value": "Dune"}}, {"copies"' in source
    assert "principal=CALLER" in source
    code, _, error = command(capsys, "to-test", joined.id, "--both", "--server", "shop:server", path)
    assert code == 2
    assert "the second era would get the first era's result; omit --both" in error


async def test_test_of_a_joined_call_passes(make: Any, path: Path, project: Project) -> None:
    await in_order(make, ANSWERS, number=7)
    await User(make, ANSWERS, era=Era.LIVE, principal="ann").call("order", number=8)
    project.serve(SHOP.replace("len(RAN)", "1"))
    for place, call in enumerate(calls_of(path)):
        file = project.folder / f"test_{place}.py"
        assert main(["trace", "to-test", call.id, "--server", "shop:server", "--output", str(file), str(path)]) == 0
    ended, output = project.run()
    assert list(ended.values()) == [{"passed"}] * 2, output
