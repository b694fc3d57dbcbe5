"""Values that no recorder revealed are on no page, and in no file that operators' commands write."""

from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from roundtrip.cli import main
from tests.interaction.tasks import workshops
from tests.kit.operated import UiProcess, run_ui
from tests.kit.peer import peers
from tests.kit.waiting import until_plain

SHOP = "tests.interaction.tasks.workshops:shop"
SECRET = "5ecret-of-a-client"
PAGES = ["", "tasks", "approvals", "rejected", "fleet", "actions"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setenv("ROUNDTRIP_TRACE", f"{folder}/")
    monkeypatch.delenv("ROUNDTRIP_TRACE_REVEAL", raising=False)
    return folder


async def _calls() -> list[str]:
    """Make a task that asks, one that failed, and a request with an invalid token; return the calls."""
    async with peers(workshops.shop()) as (peer,):
        asking = (await peer.call("build", secret=SECRET))["taskId"]
        done = (await peer.call("build", secret=f"{SECRET} too"))["taskId"]
        for task in (asking, done):
            await peer.asked(task, "size")
        await peer.answer(done, size=3)
        await peer.until(done)
        await peer.send("tools/call", name="build", arguments={"secret": SECRET}, requestState=f"r3.{SECRET}")
        return [task.partition(".")[0] for task in (asking, done)]


def everything(served: UiProcess, calls: list[str]) -> bytes:
    places = [*PAGES, *(f"call?id={quote(call)}" for call in calls)]
    places += [f"{page or 'calls'}.json" for page in PAGES] + [f"call.json?id={quote(call)}" for call in calls]
    answers = [served.request(place) for place in places]
    assert {answer.status for answer in answers} == {200}
    return b"\n".join(answer.body for answer in answers)


def test_no_page_has_a_value_that_was_not_revealed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    calls = anyio.run(_calls)
    with run_ui("--server", SHOP, str(folder)) as served:
        until_plain(lambda: served.request("calls.json").data["total"] >= 2)
        shown = everything(served, calls)
        assert b"asking" in shown
        assert SECRET.encode() not in shown
        answer = served.post("answer", {"call": calls[0], "key": "size", "action": "accept", "fields": {}})
        assert "--test-user" in answer.data["error"]
        fork = served.post("fork", {"call": calls[0], "at": 1, "answers": [f"size={SECRET}"]})
        assert "reveal" in fork.data["error"]
        fork = served.post("fork", {"call": calls[0], "at": 1, "answers": [f"size={'x' * 200_000}"]})
        assert fork.data == {"error": "the fork cannot start because an answer is too long"}
        assert served.post("act", {"call": calls[0], "action": "retry"}).data["error"].startswith("only lost")
        assert served.post("act", {"call": "unknown", "action": "cancel"}).data["error"].startswith("there is no such")
        assert served.post("act", {"call": calls[0], "action": "expire"}).data == {"done": "The call has expired."}
        assert SECRET.encode() not in everything(served, calls[1:])
        assert served.end() == 130
    assert main(["calls", "show", calls[1], "--server", SHOP, str(folder)]) == 0
    assert main(["calls", "ls", str(folder)]) == 0
    said = capfd.readouterr()
    assert SECRET not in said.out
    # The log of the shop itself, in this process, may name its tool's arguments in no line either.
    assert SECRET not in said.err
    written = list(folder.iterdir())
    assert len(written) >= 3
    assert not any(SECRET.encode() in path.read_bytes() for path in written)


def test_test_users_see_what_they_are_asked(folder: Path) -> None:
    calls = anyio.run(_calls)
    with run_ui("--server", SHOP, "--test-user", str(folder)) as served:
        (question,) = served.request(f"call.json?id={calls[0]}").data["stored"]["questions"]
        assert question["message"] == f"How large is {SECRET}?"
        assert served.end() == 130
