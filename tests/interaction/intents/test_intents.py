"""Tools that run once per intent, on both eras: whatever repeats a call, its body runs once and its questions are asked
once.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult
from pydantic import Secret, SecretBytes, SecretStr

from roundtrip import Server
from roundtrip.ledger import LedgerDown, MemoryLedger, SqliteLedger
from roundtrip.system import System
from roundtrip.testing import DECLINE, LEAVE, Clock, Era, LegByLeg, User
from tests.interaction.intents.stores import (
    OTHER_KEY,
    RECALLED,
    Store,
    anew,
    by_color,
    called,
    client,
    former,
    number,
)
from tests.interaction.ledger.shops import text_of
from tests.kit.shops import KEY
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

EACH: Final = pytest.mark.usefixtures("each_class")
ERAS: Final = pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])


@EACH
@ERAS
async def test_second_call_gets_the_result_of_the_first(era: Era) -> None:
    store = Store()
    user = User(store, era=era, principal="ann")
    first, second = await user.call("give", order="tea"), await user.call("give", order="tea")
    assert first.result is not None
    assert second.result is not None
    assert first.value == second.value == "1 tea no. 1"
    assert RECALLED in (second.result.meta or {})
    assert RECALLED not in (first.result.meta or {})


async def test_each_caller_tool_and_value_has_an_intent_of_its_own() -> None:
    store = Store()
    results = [
        text_of(await called(store, tool, user, order=order))
        for tool, user, order in [
            ("give", "ann", "tea"),
            ("give", "bob", "tea"),
            ("shared", "ann", "tea"),
            ("give", "ann", "te"),
            ("give", "ann", "tea|x"),
        ]
    ]
    assert len(set(results)) == len(results)
    assert len(set(store.keys)) == len(results)


async def test_all_callers_may_share_an_intent() -> None:
    store = Store()
    assert text_of(await called(store, "shared", "ann", order="tea")) == "1 tea no. 1"
    assert text_of(await called(store, "shared", "bob", order="tea")) == "1 tea no. 1"
    assert text_of(await called(store, "shared", None, order="tea")) == "1 tea no. 1"


@pytest.mark.parametrize("keys", [(KEY,), (OTHER_KEY, KEY)])
@pytest.mark.parametrize(("user", "other"), [("ann", "bob"), (None, None)])
async def test_callers_who_share_an_intent_share_its_end_and_no_answers(
    user: str | None, other: str | None, keys: tuple[str, ...]
) -> None:
    store = Store()
    one, two = client(lambda: store(keys), user), client(lambda: store(keys), other)
    await one.leg("together", {"order": "tea"})
    await one.leg("together", {"order": "tea"}, answers={"first": 4711}, state=one.token)
    await two.leg("together", {"order": "tea"})
    token = two.token
    assert list(two.questions) == ["first"]
    assert "4711" not in str(two.rounds)
    done: Any = None
    for name, value in {"first": 1, "second": 2, "third": 3}.items():
        done = await two.leg("together", {"order": "tea"}, answers={name: value}, state=two.token)
    # The step of the first caller had another answer.
    assert text_of(done) == "tea 1 2 3 step 2 no. 1"
    # Guesses of the other caller's answers get one reply.
    guesses = [(one, one.token, "second", 9), (one, one.token, "second", 2), (two, token, "first", 4711)]
    for legs, state, name, value in guesses:
        guessed = await legs.leg("together", {"order": "tea"}, answers={name: value}, state=state)
        assert "answered first, or answered otherwise" in text_of(guessed)
    repeated = await two.leg("together", {"order": "tea"}, answers={"first": 1}, state=token)
    assert text_of(repeated) == text_of(await one.leg("together", {"order": "tea"})) == text_of(done)
    assert store.ran == ["tea"]


@pytest.mark.parametrize("order", ["é", "e\u0301"])
async def test_spellings_of_one_text_are_one_intent(order: str) -> None:
    store = Store()
    await called(store, "give", order="é")
    await called(store, "give", order=order)
    assert len(store.ran) == 1


@EACH
async def test_other_arguments_under_one_intent_are_rejected() -> None:
    store = Store()
    await called(store, "give", order="tea")
    refused = await called(store, "give", order="tea", copies=999)
    assert refused.is_error
    assert "other arguments" in text_of(refused)
    assert len(store.ran) == 1


@EACH
async def test_secret_arguments_are_compared_whichever_key_is_the_newest() -> None:
    store = Store()
    for keys in ((KEY,), (KEY, OTHER_KEY), (OTHER_KEY, KEY)):
        legs = client(partial(store, keys))
        assert text_of(await legs.leg("unlock", {"order": "tea", "pin": "4711"})) == "tea unlocked"
        assert "other arguments" in text_of(await legs.leg("unlock", {"order": "tea", "pin": "4712"}))
    assert store.ran == ["tea"]


async def test_other_arguments_do_not_join_an_open_question() -> None:
    store = Store()
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    # `book` has one argument, so compare a tool whose intent is a part of it.
    await called(store, "grouped", order="tea-1")
    refused = await called(store, "grouped", order="tea-2")
    assert "other arguments" in text_of(refused)


async def test_unknown_caller_is_rejected() -> None:
    store = Store()
    refused = await called(store, "give", None, order="tea")
    assert refused.is_error
    assert all(part in text_of(refused) for part in ("must know who calls", "principal=", "scope='service'"))
    assert not store.ran


@EACH
async def test_clients_may_choose_the_key() -> None:
    store = Store()
    meta = {"com.example/key": "k1"}
    legs = client(store)
    first = await legs.leg("keyed", {"order": "tea"}, meta=meta)
    again = await client(store).leg("keyed", {"order": "tea"}, meta=meta)
    other = await client(store).leg("keyed", {"order": "tea"}, meta={"com.example/key": "k2"})
    assert text_of(first) == text_of(again) == "1 tea no. 1"
    assert text_of(other) == "1 tea no. 2"
    missing = await called(store, "keyed", order="tea")
    assert missing.is_error
    assert "identifies" in text_of(missing)
    assert [text_of(await called(store, "perhaps", order="tea")) for _ in range(2)] == ["1 tea no. 3", "1 tea no. 4"]


@pytest.mark.parametrize("key", [5, "", "x" * 2000, ["k"]])
async def test_bad_key_of_a_client_is_rejected(key: Any) -> None:
    store = Store()
    refused = await client(store).leg("keyed", {"order": "tea"}, meta={"com.example/key": key})
    assert refused.is_error
    assert "_meta['com.example/key']" in text_of(refused)
    assert not store.ran


async def test_long_value_cannot_identify_a_call() -> None:
    store = Store()
    refused = await called(store, "give", order="x" * 2000)
    assert "at most 1024" in text_of(refused)
    assert not store.ran


@EACH
async def test_call_that_runs_is_waited_for() -> None:
    store = Store()
    store.go_on = anyio.Event()
    results: list[Any] = []

    async def call() -> None:
        results.append(text_of(await called(store, "give", order="tea")))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await store.began.wait()
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            store.go_on.set()
    assert results == ["1 tea no. 1"] * 2
    assert len(store.ran) == 1


@EACH
async def test_failure_is_kept_unless_the_author_lets_it_run_again() -> None:
    store = Store()
    first, second = await called(store, "fail", order="tea"), await called(store, "fail", order="tea")
    assert text_of(first) == text_of(second)
    assert len(store.ran) == 1
    other = Store()
    failed, fine = await called(other, "retry", order="tea"), await called(other, "retry", order="tea")
    assert failed.is_error
    assert text_of(fine) == "tea no. 2"
    assert other.keys == []


@EACH
@ERAS
async def test_decline_holds_for_a_while(era: Era) -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    store = Store(MemoryLedger(system=system), system=system)
    first: Any = await User(store, {"confirm:pay": DECLINE}, era=era, principal="ann").call("pay", order="tea")
    again: Any = await User(store, era=era, principal="ann").call("pay", order="tea")
    assert first.result.is_error
    assert text_of(again.result) == text_of(first.result)
    clock.advance(6 * 60)
    paid = await User(store, {"confirm:pay": True}, era=era, principal="ann").call("pay", order="tea")
    assert paid.value == "tea paid no. 1"


async def test_second_client_is_asked_the_same_question_and_only_what_is_open() -> None:
    store = Store()
    one, two = client(store), client(store)
    await one.leg("book", {"order": "tea"})
    await one.leg("book", {"order": "tea"}, answers={"first": 1}, state=one.token)
    await two.leg("book", {"order": "tea"})
    assert list(two.questions) == ["second"]
    await two.leg("book", {"order": "tea"}, answers={"second": 2}, state=two.token)
    done = await two.leg("book", {"order": "tea"}, answers={"third": 3}, state=two.token)
    assert text_of(done) == "tea 1 2 3 step 1 no. 1"
    # The first client's token has become old. Its answer is the same, so it gets the result.
    assert text_of(await one.leg("book", {"order": "tea"}, answers={"second": 2}, state=one.token)) == text_of(done)
    late = await one.leg("book", {"order": "tea"}, answers={"second": 9}, state=one.token)
    assert "answered otherwise" in text_of(late)
    assert store.steps == ["tea"]


async def test_decline_of_an_answered_question_is_an_error_and_not_a_success() -> None:
    store = Store()
    one, two = client(store), client(store)
    await one.leg("pay", {"order": "tea"})
    await two.leg("pay", {"order": "tea"})
    paid = await one.leg("pay", {"order": "tea"}, answers={"confirm:pay": True}, state=one.token)
    assert text_of(paid) == "tea paid no. 1"
    late = await two.leg("pay", {"order": "tea"}, answers={"confirm:pay": DECLINE}, state=two.token)
    assert late.is_error
    assert "answered otherwise" in text_of(late)


@EACH
async def test_client_that_begins_again_gives_its_answers_again_in_order() -> None:
    """LangGraph sends a call from its start for each answer, and gives the earlier answers again."""
    store = Store()
    known: list[dict[str, int]] = []
    asked: list[str] = []
    result: Any = None
    for _ in range(4):
        legs = client(store)
        result = await legs.leg("book", {"order": "tea"})
        for given in known:
            assert isinstance(result, InputRequiredResult)
            assert list(legs.questions) == list(given)
            result = await legs.leg("book", {"order": "tea"}, answers=given, state=legs.token)
        if isinstance(result, InputRequiredResult):
            (name,) = legs.questions
            asked.append(name)
            known.append({name: len(known)})
    assert asked == ["first", "second", "third"]
    assert text_of(result) == "tea 0 1 2 step 1 no. 1"
    assert store.steps == ["tea"]


async def test_answers_that_are_given_again_must_be_the_same() -> None:
    store = Store()
    for answer in (None, 1, 1):
        legs = client(store)
        await legs.leg("book", {"order": "tea"})
        if answer is not None:
            await legs.leg("book", {"order": "tea"}, answers={"first": answer}, state=legs.token)
            assert list(legs.questions) == ["second"]
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    assert list(legs.questions) == ["first"]
    other = await legs.leg("book", {"order": "tea"}, answers={"first": 7}, state=legs.token)
    assert "answered otherwise" in text_of(other)


async def test_repeated_legs_and_lost_responses_change_nothing() -> None:
    store = Store()
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    answers: dict[str, Any] = {}
    first: Any = None
    again: Any = None
    for name, value in {"first": 1, "second": 2, "third": 3}.items():
        token, answers = legs.token, {name: value}
        first = await legs.leg("book", {"order": "tea"}, answers=answers, state=token)
        again = await legs.leg("book", {"order": "tea"}, answers=answers, state=token)
    assert text_of(first) == text_of(again) == "tea 1 2 3 step 1 no. 1"
    assert store.steps == ["tea"]


async def test_live_call_goes_on_after_its_first_client_has_gone() -> None:
    store = Store()
    left = await User(store, {"first": 1, "second": LEAVE}, era=Era.LIVE, principal="ann").call("book", order="tea")
    assert left.left
    second = await User(store, {"second": 2, "third": 3}, era=Era.LIVE, principal="ann").call("book", order="tea")
    assert second.value == "tea 1 2 3 step 1 no. 1"
    assert store.steps == ["tea"]


@EACH
async def test_eras_share_an_intent() -> None:
    store = Store()
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    live = await User(store, {"second": 2, "third": 3}, era=Era.LIVE, principal="ann").call("book", order="tea")
    assert live.value == "tea 1 2 3 step 1 no. 1"
    assert text_of(await legs.leg("book", {"order": "tea"}, answers={"second": 2}, state=legs.token)) == live.value


async def test_key_may_be_rotated_and_its_loss_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(SqliteLedger(tmp_path / "ledger.db"))
    legs = client(lambda: store((KEY,)))
    await legs.leg("book", {"order": "tea"})
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    await legs.leg("give", {"order": "tea"})
    rotated = client(lambda: store((OTHER_KEY, KEY)))
    await rotated.leg("book", {"order": "tea"})
    assert list(rotated.questions) == ["second"]
    assert text_of(await rotated.leg("give", {"order": "tea"})) == "1 tea no. 1"
    dropped = client(lambda: store((OTHER_KEY,)))
    with pytest.raises(MCPError) as refused:
        await dropped.leg("give", {"order": "tea"})
    assert refused.value.error.data["reason"] == "ledger_unavailable"
    assert "no key that opens" in refused.value.error.message
    assert store.ran == ["tea"]
    # The journal was sealed again with the newer key.
    await dropped.leg("book", {"order": "tea"})
    assert list(dropped.questions) == ["second"]


async def test_nothing_of_a_call_lies_readable_in_the_ledger(tmp_path: Path) -> None:
    store = Store(SqliteLedger(tmp_path / "ledger.db"))
    legs = client(store)
    await legs.leg("book", {"order": "marzipan"})
    await legs.leg("book", {"order": "marzipan"}, answers={"first": 4711}, state=legs.token)
    await called(store, "give", order="marzipan")
    await store.ledger.aclose()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        rows = [row for table in ("entries", "notes") for row in db.execute(f"SELECT * FROM {table}")]
    assert any(row[0].startswith("intent/") for row in rows)
    assert not any(word in str(rows) for word in ("marzipan", "4711", "first", "ann"))


async def test_ledger_that_is_down_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    with monkeypatch.context() as patch:

        async def down(*_: Any, **__: Any) -> Any:
            raise LedgerDown("the ledger is down")

        patch.setattr(MemoryLedger, "claim", down)
        with pytest.raises(MCPError, match="ledger"):
            await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    assert list(legs.questions) == ["second"]


async def test_journal_that_cannot_be_saved_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    with monkeypatch.context() as patch:

        async def down(*_: Any, **__: Any) -> Any:
            raise LedgerDown("the ledger is down")

        patch.setattr(MemoryLedger, "release", down)
        with pytest.raises(MCPError, match="ledger"):
            await called(store, "book", order="tea")
    with anyio.fail_after(WAIT):
        legs = client(store)
        await legs.leg("book", {"order": "tea"})
    assert list(legs.questions) == ["first"]


async def test_full_ledger_runs_nothing() -> None:
    store = Store(MemoryLedger(max_bytes=2000))
    await called(store, "give", order="0")
    with pytest.raises(MCPError) as refused:
        await called(store, "give", order="1")
    assert refused.value.error.data["reason"] == "ledger_unavailable"
    ran = len(store.ran)
    assert text_of(await called(store, "give", order="0")) == "1 0 no. 1"
    assert len(store.ran) == ran


async def test_old_answers_are_asked_again_and_steps_are_kept() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    store = Store(MemoryLedger(system=system), system=system, max_age=600, ttl=60)
    legs = client(store)
    await legs.leg("book", {"order": "tea"})
    await legs.leg("book", {"order": "tea"}, answers={"first": 1}, state=legs.token)
    clock.advance(20 * 60)
    await legs.leg("book", {"order": "tea"})
    assert list(legs.questions) == ["first"]
    for name in ("first", "second", "third"):
        result = await legs.leg("book", {"order": "tea"}, answers={name: 5}, state=legs.token)
    assert text_of(result) == "tea 5 5 5 step 1 no. 1"
    assert store.steps == ["tea"]


async def test_result_is_forgotten_after_its_time() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    store = Store(MemoryLedger(system=system), system=system)
    await called(store, "give", order="tea")
    clock.advance(23 * 3600)
    assert text_of(await called(store, "give", order="tea")) == "1 tea no. 1"
    clock.advance(2 * 3600)
    assert text_of(await called(store, "give", order="tea")) == "1 tea no. 2"


async def test_calls_that_began_without_intents_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool had `exactly_once=True`, and the next build has `once_per=`."""
    ledger = MemoryLedger()
    store = Store(ledger)

    def former(keys: Any = (KEY,)) -> Server[Any]:
        server = Server[Any]("store", keys=keys, ledger=ledger)
        server.add_tool(anew(store.book), exactly_once=True)
        return server

    one = client(former)
    await one.leg("book", {"order": "tea"})
    await one.leg("book", {"order": "tea"}, state=one.token)
    for name in ("first", "second"):
        await one.leg("book", {"order": "tea"}, answers={name: 1}, state=one.token)
    state = one.token
    new = client(store)
    new.rounds.extend(one.rounds)
    done = await new.leg("book", {"order": "tea"}, answers={"third": 3}, state=state)
    print(done)
    assert text_of(done) == "tea 1 1 3 step 1 no. 1"
    # A copy of the last leg reaches the former build, and a new call the new one.
    assert text_of(await one.leg("book", {"order": "tea"}, answers={"third": 3}, state=state)) == text_of(done)
    assert text_of(await called(store, "book", order="tea")) == text_of(done)
    assert store.ran == ["tea"]
    assert store.steps == ["tea"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"once_per": "order"}, "names no argument"),
        ({"once_per": "{sort}"}, "must name only arguments"),
        ({"once_per": "{order!r}"}, "without a format"),
        ({"once_per": "{"}, "not a format string"),
        ({"once_per": 5}, "must be a template"),
        ({"once_per": "{order}", "exactly_once": True}, "leave out exactly_once="),
        ({"once_per": "{order}", "keep": 0}, "keep must be"),
        ({"once_per": "{order}", "declined_for": "x"}, "declined_for must be"),
        ({"once_per": "{order}", "scope": "all"}, "scope must be"),
        ({"once_per": "{order}", "on_failure": "x"}, "on_failure must be"),
        ({"once_per": "{order}", "uncovered": "round"}, "is for exactly_once=True"),
        ({"once_per": by_color}, "not an argument of the tool"),
        ({"keep": 5}, "together with once_per="),
        ({"uncovered": "run"}, "together with exactly_once=True or once_per="),
    ],
)
async def test_options_that_mean_nothing_are_rejected(options: dict[str, Any], message: str) -> None:
    async def give(order: str) -> str:
        return order

    with pytest.raises(Exception, match=message):
        Server[Any]("store").tool(give, **options)


class Voucher(Secret[str]):
    """A secret of the author's."""


@pytest.mark.parametrize("kind", [SecretStr, SecretBytes | None, Secret[str], Annotated[Voucher, "x"], list[Voucher]])
async def test_secrets_cannot_identify_a_call(kind: Any) -> None:
    async def log_in(password: Any) -> str:
        return "in"

    log_in.__annotations__["password"] = kind
    with pytest.raises(Exception, match="secret"):
        Server[Any]("store").tool(log_in, once_per="{password}")


async def test_changing_defaults_cannot_identify_a_call() -> None:
    with pytest.raises(Exception, match="made anew"):
        Server[Any]("store").tool(number, once_per="{order}")


async def test_server_that_knows_no_caller_must_say_that_all_share() -> None:
    async def give(order: str) -> str:
        return order

    with pytest.raises(Exception, match="scope='service'"):
        Server[Any]("store", keys=[KEY], principal=False).tool(give, once_per="{order}")
    Server[Any]("store", keys=[KEY], principal=False).tool(give, once_per="{order}", scope="service")


async def test_token_of_an_intent_is_rejected_where_the_tool_has_no_intents() -> None:
    """During a rollout, both builds could otherwise run the body for one repeated leg."""
    store = Store()
    legs = LegByLeg(lambda: store((KEY,)), principal="ann")
    await legs.leg("book", {"order": "tea"})
    first = {"first": 1}
    with pytest.raises(MCPError) as refused:
        await LegByLeg(lambda: former(store), principal="ann").leg(
            "book", {"order": "tea"}, answers=first, state=legs.token
        )
    assert "requestState" in refused.value.error.message
    await legs.leg("book", {"order": "tea"}, answers=first, state=legs.token)
    assert list(legs.questions) == ["second"]
    assert store.steps == ["tea"]


async def test_call_that_ends_at_the_build_before_does_not_run_again() -> None:
    """A leg was repeated during a rollout, at an instance of each build, and the client goes on from both replies."""
    store = Store()
    build: list[Any] = [former]
    legs = LegByLeg(lambda: build[0](store), principal="ann")

    async def answered(token: str, **answers: int) -> Any:
        return await legs.leg("book", {"order": "tea"}, answers=answers, state=token)

    await legs.leg("book", {"order": "tea"})
    await answered(legs.token)
    token = legs.token
    build[0] = Store.__call__
    await answered(token, first=1)
    newer = legs.token
    build[0] = former
    await answered(token, first=1)
    await answered(legs.token, second=2)
    await answered(legs.token, third=3)
    assert store.ran == ["tea"]
    build[0] = Store.__call__
    late = await answered(newer, second=2)
    assert "with other answers" in text_of(late)
    assert store.ran == ["tea"]
