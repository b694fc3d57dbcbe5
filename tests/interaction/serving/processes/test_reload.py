"""`roundtrip serve --reload` replaces its process when files change, and calls go on."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip.testing import Era, LegByLeg
from tests.interaction.serving.services import KEY, WAIT, Service, eventually, not_begun
from tests.kit.players import call, text_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
]

SHOP: Final = """\
import anyio
from roundtrip import Server
from shelf import WORD

server = Server("shop"{options})

@server.tool
async def buy(title: str, ctx) -> str:
    copies = await ctx.ask("copies", f"How many of {{title}}?", int)
    return f"{{WORD}} {{copies}} of {{title}}"

@server.tool
async def hold(begun: str, gate: str) -> str:
    await anyio.Path(begun).touch()
    while not await anyio.Path(gate).exists():
        await anyio.sleep(0.01)
    return WORD
""".replace("ctx)", "ctx: 'Context')").replace("import Server", "import Context, Server")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "reload_shop.py").write_text(SHOP.format(options=""))
    say(tmp_path, "old")
    return tmp_path


_TIME: Final = 1_700_000_000
"""The second in which all changes are made: a compiled file of the same size and time must not be taken."""


def say(project: Path, word: str) -> None:
    """Replace the module, as editors do, with another file of the same time."""
    file = project / "shelf.new"
    file.write_text(f"WORD = {word!r}\n")
    os.utime(file, (_TIME, _TIME))
    file.replace(project / "shelf.py")


def keys_of(worker: int) -> bytes:
    """Return the keys in the environment of a process."""
    variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    (keys,) = (one.partition(b"=")[2] for one in variables if one.startswith(b"ROUNDTRIP_KEYS="))
    return keys


@pytest.fixture
def service(project: Path) -> Generator[Service]:
    with Service("reload_shop.py:server", "--reload", folder=project) as service:
        yield service


async def heard(service: Service, pattern: str) -> str:
    with anyio.fail_after(WAIT):
        return (await anyio.to_thread.run_sync(service.heard, pattern))[0]


async def begun(url: str) -> LegByLeg:
    """Return a call that has asked its question."""
    legs = LegByLeg(url)
    await legs.leg("buy", {"title": "Dune"})
    return legs


async def finished(legs: LegByLeg) -> str:
    return text_of(await legs.leg("buy", {"title": "Dune"}, answers={"copies": {"value": 3}}, state=legs.token))


async def test_call_in_flight_goes_on_with_the_new_code(service: Service, project: Path) -> None:
    legs = await begun(service.url)
    say(project, "new")
    await heard(service, r"reloading because shelf\.py changed")
    await heard(service, r"roundtrip: reloaded$")
    assert await finished(legs) == "new 3 of Dune"
    # Twice: the key outlives every process but the first.
    say(project, "newest")
    await heard(service, r"roundtrip: reloaded$")
    assert await finished(legs) == "newest 3 of Dune"


def test_key_of_a_run_exists_in_its_processes_alone(service: Service, project: Path) -> None:
    (worker,) = service.workers()
    key = keys_of(worker)
    assert len(key) == 64
    files = [file for file in project.rglob("*") if file.is_file()]
    assert files
    assert not any(key in file.read_bytes() for file in files)
    assert key.decode() not in "".join(service.log)
    for process in (worker, service.process.pid):
        assert key not in Path(f"/proc/{process}/cmdline").read_bytes()
    service.signal(signal.SIGINT)
    assert service.ended() == 0
    assert not Path(f"/proc/{worker}").exists()


async def test_broken_change_leaves_the_old_code_serving(service: Service, project: Path) -> None:
    (project / "shelf.py").write_text("WORD = \n")
    told = await heard(service, "not reloaded; .*")
    assert "the old code keeps serving: importing 'reload_shop.py' failed: SyntaxError" in told
    assert text_of(await call(service.url, Era.RETRY, "buy", {"title": "Dune"}, {"value": 1})) == "old 1 of Dune"
    say(project, "mended")
    await heard(service, r"roundtrip: reloaded$")
    assert text_of(await call(service.url, Era.RETRY, "buy", {"title": "Dune"}, {"value": 1})) == "mended 1 of Dune"


async def test_running_request_ends_with_the_code_that_it_began_with(service: Service, project: Path) -> None:
    begun, gate = project / "begun", project / "gate"
    results: list[str] = []

    async def hold() -> None:
        arguments = {"begun": str(begun), "gate": str(gate)}
        results.append(text_of(await call(service.url, Era.RETRY, "hold", arguments)))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await anyio.to_thread.run_sync(eventually, begun.exists)
            say(project, "new")
            # New requests do not wait for the old one.
            await heard(service, r"roundtrip: reloaded$")
            bought = await call(service.url, Era.RETRY, "buy", {"title": "Dune"}, {"value": 1})
            assert text_of(bought) == "new 1 of Dune"
            assert not results
            gate.touch()
    assert results == ["old"]


async def test_server_that_makes_its_own_keys_warns_that_calls_are_lost(project: Path) -> None:
    text = "import os\n" + SHOP.format(options=", keys=[os.urandom(32)]")
    (project / "reload_shop.py").write_text(text)
    with Service("reload_shop.py", "--reload", folder=project) as service:
        legs = await begun(service.url)
        say(project, "new")
        await heard(service, "calls in flight are lost: the server's keys changed")
        await heard(service, r"roundtrip: reloaded$")
        with pytest.raises(MCPError, match="Invalid or expired"):
            await finished(legs)


async def test_server_that_fails_to_start_waits_for_the_next_change(project: Path) -> None:
    with Service("reload_shop.py", "--reload", folder=project) as service:
        broken = "\nfrom contextlib import asynccontextmanager\n@asynccontextmanager\nasync def fail(server):\n"
        broken += "    raise OSError('no shelf')\n    yield\nserver = Server('shop', lifespan=fail)\n"
        (project / "reload_shop.py").write_text(SHOP.format(options="") + broken)
        await heard(service, "the changed server does not start; no server runs until the next change")
        (project / "reload_shop.py").write_text(SHOP.format(options=""))
        await heard(service, r"roundtrip: reloaded$")
        assert text_of(await call(service.url, Era.RETRY, "buy", {"title": "Dune"}, {"value": 1})) == "old 1 of Dune"


async def test_server_with_its_ledger_in_memory_is_replaced_too(project: Path) -> None:
    """Several workers would need a shared one. Older clients are asked before and after."""
    shop = SHOP.format(options="").replace(
        "@server.tool\nasync def hold", "@server.tool(exactly_once=True, uncovered='round')\nasync def hold"
    )
    (project / "reload_shop.py").write_text(shop)
    with Service("reload_shop.py", "--reload", folder=project, ROUNDTRIP_KEYS=KEY) as service:
        assert any("exactly_once= and once_per= hold only within this process" in line for line in service.log)
        (worker,) = service.workers()
        os.kill(worker, signal.SIGKILL)
        await heard(service, "starting another")
        assert text_of(await call(service.url, Era.LIVE, "buy", {"title": "Dune"}, {"value": 1})) == "old 1 of Dune"
        before = service.workers()
        say(project, "new")
        await heard(service, r"roundtrip: reloaded$")
        assert text_of(await call(service.url, Era.LIVE, "buy", {"title": "Dune"}, {"value": 1})) == "new 1 of Dune"
        assert {keys_of(worker) for worker in service.workers() - before} == {KEY.encode()}


RELOADING: Final = ["reload_shop.py", "--reload", "--port", "0"]


@pytest.mark.parametrize(
    ("words", "changed", "messages"),
    [
        ([*RELOADING, "--workers", "2"], {}, ["--reload replaces one process, but --workers starts several"]),
        (["reload_shop.py", "--reload", "--stdio"], {}, ["--reload needs HTTP: a host holds the pipes of the process"]),
        (["reload_shop.py", "--stdio", "--host", "x"], {}, ["--stdio serves one host without HTTP; remove --host"]),
        ([*RELOADING, "--folder", "nowhere"], {}, ["cannot change to --folder 'nowhere': No such file or directory"]),
        (["shelf.py", "--workers", "2"], {"shelf.py": ""}, ["'shelf.py' has no server at module level"]),
        (RELOADING, {"shelf.py": "1 / 0\n"}, ['division by zero\n  File "reload_shop.py", line 3, in <module>']),
        (
            RELOADING,
            {"reload_shop.py": "from roundtrip import Server\nserver = Server()\n"},
            ["must have a name", "(--reload sets ROUNDTRIP_KEYS to a new key)\n  File"],
        ),
    ],
)
def test_what_cannot_be_served_is_rejected_with_reasons(
    project: Path, words: list[str], changed: dict[str, str], messages: list[str]
) -> None:
    for name, text in changed.items():
        (project / name).write_text(text)
    told = not_begun(["serve", *words], folder=project)
    assert [message for message in messages if message not in told] == []
