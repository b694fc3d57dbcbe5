"""`roundtrip calls` and the tasks of a store: looking at them, and changing them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.cli import main
from roundtrip.ledger.tasks import CallEntry, change_task
from tests.interaction.tasks import workshops
from tests.interaction.tasks.effects import effects
from tests.kit.peer import peers, text_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("workshop_folder")]
SHOPS = "tests.interaction.tasks.workshops"


async def run(*words: str, target: str = "shop") -> int:
    """Run a command in a thread: it has an event loop of its own."""
    action, *rest = words
    return await anyio.to_thread.run_sync(main, ["calls", action, *rest, "--server", f"{SHOPS}:{target}"])


async def test_contents_of_tasks_are_shown_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(workshops.shop()) as (peer,):
        assert await run("stored") == 0
        assert capsys.readouterr() == ("", "roundtrip calls: there is no stored call to list\n")
        asking = (await peer.call("build", secret="argument-4711"))["taskId"]
        await peer.asked(asking, "size")
        done = (await peer.call("build", secret="this"))["taskId"]
        await peer.asked(done, "size")
        await peer.answer(done, size=3)
        await peer.until(done)
        assert await run("stored") == 0
        listed = capsys.readouterr().out
        assert await run("stored", "--json", "--state", "asking") == 0
        data = json.loads(capsys.readouterr().out)
        call_id = asking.split(".")[0]
        for text in (asking, call_id, call_id[:6]):
            assert await run("show", text) == 0
            shown = capsys.readouterr().out
            assert f"call               {call_id}" in shown
            assert 'asking             ["size"]' in shown
            assert 'steps              ["first"]' in shown
            assert "argument-4711" not in shown
        assert await run("show", "last") == 0
        shown = capsys.readouterr().out
        assert f"call               {done.split('.')[0]}" in shown
        assert ('steps              ["first", "last"]' in shown, "due" in shown) == (True, False)
        assert await run("show", asking, "--reveal", "--json") == 0
        revealed = json.loads(capsys.readouterr().out)["stored"]
    lines = listed.splitlines()
    assert lines[0].split() == ["call", "tool", "state", "created", "changed", "next"]
    assert [line.split()[:3] for line in lines[1:]] == [
        [done.split(".")[0], "build", "completed"],
        [call_id, "build", "asking"],
    ]
    assert [(one["call_id"], one["state"], one["due"]) for one in data] == [(call_id, "asking", None)]
    assert "argument-4711" not in listed
    assert revealed["status message"] == "building argument-4711 (1)"
    assert revealed["arguments"] == {"secret": "argument-4711"}
    assert revealed["questions"]["size"]["params"]["message"] == "How large is argument-4711?"
    assert await run("show", "unknown") == 2
    assert "'unknown' matches no stored call" in capsys.readouterr().err


async def test_invalid_limit_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    for limit in ("0", "9" * 30):
        with pytest.raises(SystemExit) as ended:
            await run("stored", "--limit", limit)
        assert ended.value.code == 2
        assert f"argument --limit: must be a whole number from 1 to 1000000, got {limit!r}" in capsys.readouterr().err


async def lost(server: Any, tool: str, peer: Any, **sent: Any) -> str:
    """Return a task whose worker has died inside its body too often, or inside a body that runs once."""
    handle = await peer.ask("tools/call", name=tool, arguments={}, **sent)
    call_id = handle["taskId"].split(".")[0]
    store = server.ledger.tasks

    def lose(entry: CallEntry, now: float) -> bool:
        if not entry.claim("dead", now, lease=1):
            return False
        entry.has_begun = entry.runs_once
        return entry.end_lease(now)

    # The task may still be made.
    await until(lambda: change_task(store, call_id, lose))
    return handle["taskId"]


async def test_body_that_runs_once_is_retried_only_on_request(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "0")
    server = workshops.shop()
    async with peers(server) as (peer,):
        asked = await peer.call("pay")
        task = await lost(server, "pay", peer, requestState=asked["requestState"])
        assert await run("show", task) == 0
        shown = capsys.readouterr().out
        assert "exactly once       true\ndeaths of workers  1" in shown
        assert "epoch" not in shown
        assert await run("retry", task) == 1
        assert "must not begin twice" in capsys.readouterr().out
        assert (await peer.get(task))["status"] == "failed"
        assert await run("retry", "--even-once", task) == 0
        assert capsys.readouterr().out == f"{task.split('.')[0]}: due again\n"
        (tmp_path / "go on").touch()
        monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "1")
        async with peers(workshops.shop()) as (second,):
            assert text_of(await second.until(task)) == "paid"


async def test_rekeyed_tasks_need_the_newest_key_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "0")
    async with peers(workshops.old_shop()) as (peer,):
        due = (await peer.call("build", secret="this"))["taskId"]
    monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "1")
    async with peers(workshops.old_shop()) as (peer,):
        await peer.asked(due, "size")
        asked = (await peer.call("ask_twice"))["taskId"]
        await peer.asked(asked, "a")
        await peer.answer(asked, a=1)
        await peer.asked(asked, "b")
        # The result of its step is stored apart, while its body runs.
        held = (await peer.call("hold"))["taskId"]
        await until(lambda: len(effects(tmp_path)) == 3)
        assert await run("rekey", target="shop") == 0
        assert "3 now encrypted with the newest key" in capsys.readouterr().out
    (tmp_path / "go on").touch()
    assert await run("rekey", target="shop") == 0
    assert ", 3 already were" in capsys.readouterr().out
    # The client's id is still valid, and so are answers, although the key of their time is gone.
    async with peers(workshops.new_shop()) as (peer,):
        await peer.answer(due, size=3)
        assert text_of(await peer.until(due)) == "first this 3"
        await peer.answer(asked, b=2)
        assert text_of(await peer.until(asked)) == "1 2 7"
        assert text_of(await peer.until(held)) == "done"
    assert effects(tmp_path).count("first") == 2
    assert await run("show", due, target="old_shop") == 1
    assert await run("rekey", target="old_shop") == 1
    assert "3 could not be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "said"), [("idle", "the server stores no calls"), ("forgetful", "got a MemoryLedger")]
)
async def test_server_without_stored_tasks_is_rejected(
    target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("stored", target=target) == 2
    assert said in capsys.readouterr().err
