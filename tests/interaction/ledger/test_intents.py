"""What a ledger does for calls that are known by their intents: bound claims, notes, voids and declines."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from roundtrip.ledger import ClaimAnswer, ClaimStatus, lease, waiting
from roundtrip.ledger.lease import bury
from tests.interaction.ledger.holders import LONG, EpochKeeper, claim
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SHORT = 0.05
DECLINED = ClaimAnswer(ClaimStatus.DECLINED, "a", "no")
CONFLICT = ClaimAnswer(ClaimStatus.CONFLICT, "a")
NOTED = {"journal": "1"}


async def test_a_decline_holds_for_its_time_and_then_frees_the_entry_with_its_notes(ledger: EpochKeeper) -> None:
    granted = await claim(ledger, tentative=True, notes=NOTED)
    for seconds in (LONG, 3 * LONG):
        # The holder may repeat its write if the reply was lost.
        assert await ledger.settle("call", holder="one", result="no", keep=4 * LONG, declined_for=seconds)
    assert not await ledger.settle("call", holder="one", result="other", keep=LONG, declined_for=LONG)
    assert not await ledger.settle("call", holder="one", result="no", keep=LONG)
    assert not await ledger.settle("call", holder="one", result=None, keep=LONG)
    assert not await ledger.renew("call", holder="one", lease=SHORT)
    assert not await ledger.note("call", "journal", "2", holder="one")
    await ledger.release("call", holder="one", notes={"journal": "2"})
    answers = [
        await ledger.wait("call", patience=LONG),
        *[
            await claim(ledger, holder=holder, rerun=rerun, tentative=tentative, voids=granted.epoch)
            for holder, rerun, tentative in (("one", False, False), ("one", True, True), ("two", True, False))
        ],
    ]
    assert answers == [DECLINED] * 4
    assert all(answer.epoch == granted.epoch and 2 * LONG < answer.lease < 3 * LONG + 1 for answer in answers)
    assert await ledger.settle("call", holder="one", result="no", keep=LONG, declined_for=SHORT)
    await anyio.sleep(SHORT * 2)
    assert await ledger.wait("call", patience=0) is None
    assert not await ledger.settle("call", holder="one", result="no", keep=LONG, declined_for=LONG)
    second = await claim(ledger, holder="two")
    assert second == ClaimAnswer(ClaimStatus.GRANTED, "a", notes=NOTED)
    assert second.epoch > granted.epoch
    # The text that lapsed is gone.
    await ledger.renew("call", holder="two", lease=SHORT)
    assert await ledger.wait("call", patience=LONG) == ClaimAnswer(ClaimStatus.UNKNOWN, "a")
    # Its body has begun, and may have asked.
    assert await ledger.settle("call", holder="two", result="no", keep=LONG, declined_for=LONG)
    assert await claim(ledger) == DECLINED


async def test_a_decline_is_forgotten_with_its_notes(ledger: EpochKeeper) -> None:
    await claim(ledger, notes=NOTED)
    assert await ledger.settle("call", holder="one", result="no", keep=SHORT, declined_for=LONG)
    await anyio.sleep(SHORT * 2)
    assert await ledger.wait("call", patience=0) is None
    assert await claim(ledger, "call", "b", "two", is_bound=True) == ClaimAnswer(ClaimStatus.GRANTED, "b")


async def test_only_the_holder_of_a_claim_can_record_a_decline(ledger: EpochKeeper) -> None:
    first = await claim(ledger)
    assert not await ledger.settle("call", holder="two", result="no", keep=LONG, declined_for=LONG)
    assert not await ledger.settle(
        "call", holder="one", epoch=first.epoch - 1, result="no", keep=LONG, declined_for=LONG
    )
    await ledger.settle("call", holder="one", result="yes", keep=LONG)
    assert not await ledger.settle("call", holder="one", result="yes", keep=LONG, declined_for=LONG)
    assert await claim(ledger) == ClaimAnswer(ClaimStatus.SETTLED, "a", "yes")


async def test_a_dead_process_ends_no_decline(ledger: EpochKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_buried", {})
    await claim(ledger, holder="a5.one", tentative=True)
    await ledger.settle("call", holder="a5.one", result="no", keep=LONG, declined_for=LONG)
    bury("a5")
    assert await ledger.wait("call", patience=0) == DECLINED
    assert await claim(ledger, holder="two", rerun=True) == DECLINED
    # Nor can its record be changed by a repeated write.
    assert await ledger.settle("call", holder="a5.one", result="no", keep=LONG, declined_for=SHORT)
    await anyio.sleep(SHORT * 2)
    assert await ledger.wait("call", patience=0) is None


async def test_a_decline_wakes_those_who_wait(monkeypatch: pytest.MonkeyPatch, ledger: EpochKeeper) -> None:
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", LONG)
    await claim(ledger, tentative=True)
    seen: list[ClaimAnswer | None] = []

    async def wait() -> None:
        seen.append(await ledger.wait("call", patience=LONG))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(SHORT)
            await ledger.settle("call", holder="one", result="no", keep=LONG, declined_for=LONG)
    assert seen == [DECLINED]


async def test_a_decline_may_have_no_text(ledger: EpochKeeper) -> None:
    await claim(ledger)
    for _ in range(2):
        assert await ledger.settle("call", holder="one", result=None, keep=LONG, declined_for=LONG)
    assert not await ledger.settle("call", holder="one", result="no", keep=LONG, declined_for=LONG)
    assert await claim(ledger, holder="two") == ClaimAnswer(ClaimStatus.DECLINED, "a")


async def test_a_bound_claim_conflicts_with_another_digest_and_changes_nothing(ledger: EpochKeeper) -> None:
    epoch = 0
    ends: dict[str, dict[str, Any]] = {
        "settled": {"result": "yes"},
        "declined": {"result": "no", "declined_for": LONG},
        "unknown": {"result": None},
    }

    async def bound(key: str, digest: str, holder: str = "two") -> ClaimAnswer:
        # Only what has ended can be voided.
        voids = 0 if key == "settled" else epoch
        return await claim(ledger, key, digest, holder, is_bound=True, rerun=True, notes={"journal": "2"}, voids=voids)

    for key in ("held", "running", "lapsed", "settled", "declined", "unknown"):
        dies = SHORT if key == "lapsed" else LONG
        epoch = (await claim(ledger, key, tentative=key == "held", notes=NOTED, lease=dies)).epoch
        if key in ends:
            assert await ledger.settle(key, holder="one", keep=LONG, **ends[key])
        before = await ledger.wait(key, patience=LONG if key == "lapsed" else 0)
        conflict = replace(CONFLICT, result="yes", notes=NOTED) if key == "settled" else CONFLICT
        answers = [await bound(key, "b", holder) for holder in ("one", "two")]
        assert answers == [conflict] * 2
        assert {answer.epoch for answer in answers} == {epoch}
        after = await ledger.wait(key, patience=0)
        assert before is not None
        assert (after, after.epoch) == (before, before.epoch)
    await claim(ledger, "without notes", tentative=True)
    assert await bound("without notes", "b") == CONFLICT
    # The same arguments find the entry, and the holder's own claim keeps its notes.
    assert await bound("declined", "a") == DECLINED
    granted = ClaimAnswer(ClaimStatus.GRANTED, "a", notes=NOTED)
    assert await claim(ledger, "held", is_bound=True, tentative=True) == granted
    await ledger.release("held", holder="one")
    # The free entry remembers by its notes what it was claimed with.
    assert await bound("held", "b") == replace(CONFLICT, notes=NOTED)
    assert await claim(ledger, "held", holder="two", is_bound=True) == granted


async def test_other_arguments_drop_what_came_to_nothing(ledger: EpochKeeper) -> None:
    for key in ("free", "lapsed decline", "settled"):
        first = await claim(ledger, key, tentative=True, notes={**NOTED, "step": ""})
        result = None if key == "free" else "no"
        if key == "free":
            await ledger.release(key, holder="one")
        else:
            declined_for = None if key == "settled" else SHORT
            assert await ledger.settle(key, holder="one", result=result, keep=LONG, declined_for=declined_for)
    await anyio.sleep(SHORT * 2)
    for key in ("free", "lapsed decline", "settled"):
        conflict = await claim(ledger, key, "b", "two", is_bound=True)
        result = None if key == "free" else "no"
        assert conflict == replace(CONFLICT, result=result, notes={**NOTED, "step": ""})
        late = await claim(ledger, key, "b", "two", is_bound=True, voids=conflict.epoch - 1)
        assert (late, late.epoch) == (conflict, conflict.epoch)
        granted = await claim(
            ledger, key, "b", "two", is_bound=True, tentative=True, voids=conflict.epoch, notes={"new": "1"}
        )
        assert granted == ClaimAnswer(ClaimStatus.GRANTED, "b", notes={"journal": "", "step": "", "new": "1"})
        assert granted.epoch > conflict.epoch
        # Two claims may void the same end. The second one meets the first.
        for digest, status in (("b", ClaimStatus.RUNNING), ("c", ClaimStatus.CONFLICT)):
            other = await claim(ledger, key, digest, "three", is_bound=True, voids=conflict.epoch)
            assert (other.status, other.answers_digest, other.result) == (status, "b", None)
        # A claim that ends without a journal leaves no digest.
        await ledger.release(key, holder="two", notes={"new": ""})
        assert (await claim(ledger, key, "c", "three", is_bound=True)).status is ClaimStatus.GRANTED
    # A claim that is not bound voids nothing of other answers.
    first = await claim(ledger, "unbound", tentative=True, notes=NOTED)
    await ledger.release("unbound", holder="one")
    assert (await claim(ledger, "unbound", "b", "two", voids=first.epoch)).notes == NOTED


async def test_a_free_entry_without_notes_never_conflicts(ledger: EpochKeeper) -> None:
    for digest in ("a", "b", "c"):
        answer = await claim(ledger, "released", digest, digest, is_bound=True)
        assert answer == ClaimAnswer(ClaimStatus.GRANTED, digest)
        await ledger.release("released", holder=digest)
    await claim(ledger, "lapsed", tentative=True, lease=SHORT)
    await claim(ledger, "declined", tentative=True)
    await ledger.settle("declined", holder="one", result="no", keep=LONG, declined_for=SHORT)
    await anyio.sleep(SHORT * 2)
    for key in ("lapsed", "declined"):
        answer = await claim(ledger, key, "b", "two", is_bound=True)
        assert answer == ClaimAnswer(ClaimStatus.GRANTED, "b")
    # With notes, what has lapsed does conflict.
    for key in ("lapsed with notes", "declined with notes"):
        await claim(ledger, key, tentative=True, lease=SHORT, notes=NOTED)
    await ledger.settle("declined with notes", holder="one", result="no", keep=LONG, declined_for=SHORT)
    await anyio.sleep(SHORT * 2)
    for key in ("lapsed with notes", "declined with notes"):
        result = "no" if key == "declined with notes" else None
        assert await claim(ledger, key, "b", "two", is_bound=True) == replace(CONFLICT, result=result, notes=NOTED)
        assert (await claim(ledger, key, "b", "two")).notes == NOTED


async def test_claim_writes_notes_only_if_it_is_granted(ledger: EpochKeeper) -> None:
    first = await claim(ledger, notes={"journal": "1", "é/x": "2"})
    assert first.notes == {"journal": "1", "é/x": "2"}
    assert (await claim(ledger, holder="two", notes={"journal": "late"})).notes == {}
    again = await claim(ledger, notes={"journal": "3", "more": ""})
    assert (again.notes, again.epoch) == ({"journal": "3", "é/x": "2", "more": ""}, first.epoch)
    await ledger.release("call", holder="one")
    second = await claim(ledger, holder="two", notes={"journal": "4"})
    assert second.notes == {"journal": "4", "é/x": "2", "more": ""}


async def test_release_writes_notes_only_if_it_releases(ledger: EpochKeeper) -> None:
    first = await claim(ledger, keep=LONG)
    await ledger.release("call", holder="two", notes={"journal": "late"})
    await ledger.release("call", holder="one", epoch=first.epoch - 1, notes={"journal": "late"})
    await ledger.release("call", holder="one", epoch=first.epoch, notes=NOTED)
    await ledger.release("call", holder="one", notes={"journal": "late"})
    assert await ledger.wait("call", patience=0) is None
    assert (await claim(ledger)).notes == NOTED
    # The holder may not know its epoch.
    await ledger.release("call", holder="one", notes={"journal": "2", "more": "3"})
    assert (await claim(ledger, keep=SHORT)).notes == {"journal": "2", "more": "3"}
    # The notes do not live longer than the entry.
    await ledger.release("call", holder="one", notes=NOTED)
    await anyio.sleep(SHORT * 2)
    assert (await claim(ledger)).notes == {}


async def test_only_the_named_result_is_dropped(ledger: EpochKeeper) -> None:
    settled = ClaimAnswer(ClaimStatus.SETTLED, "a", "r")
    first = await claim(ledger, notes=NOTED)
    # It has no result yet.
    assert (await claim(ledger, holder="two", voids=first.epoch)).status is ClaimStatus.RUNNING
    await ledger.settle("call", holder="one", result="r", keep=LONG)
    seen = [await ledger.wait("call", patience=0), await claim(ledger, holder="two", voids=first.epoch - 1)]
    seen += [await claim(ledger, holder="one", voids=0), await claim(ledger, holder="one", rerun=True)]
    assert seen == [settled] * 4
    assert {answer.epoch for answer in seen} == {first.epoch}
    second = await claim(ledger, "call", "a", "two", voids=first.epoch, tentative=True, is_bound=True)
    assert second == ClaimAnswer(ClaimStatus.GRANTED, "a", notes=NOTED)
    assert second.epoch > first.epoch
    assert await ledger.wait("call", patience=0) == ClaimAnswer(ClaimStatus.RUNNING, "a")
    # The same request again, and the former holder, find the new claim.
    assert (await claim(ledger, holder="three", voids=first.epoch)).status is ClaimStatus.RUNNING
    assert not await ledger.settle("call", holder="one", result="r", keep=LONG)
    await ledger.release("call", holder="two")
    assert await ledger.wait("call", patience=0) is None
    assert (await claim(ledger, holder="three")).notes == NOTED
    await ledger.settle("call", holder="three", result="s", keep=LONG)
    assert await claim(ledger, voids=first.epoch) == ClaimAnswer(ClaimStatus.SETTLED, "a", "s")
