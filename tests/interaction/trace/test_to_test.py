"""`roundtrip trace to-test` writes a test that passes in a fresh project, and fails when a question is reworded."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.cli import main
from tests.interaction.trace.deploys import REPLIES, SHOP, Change, Recording, changed, recording
from tests.interaction.trace.test_check import MIXED, record_mixed
from tests.players import ERAS, Era

__all__ = ["recording"]

TAKES: Final = 110.0
"""Seconds that a run of generated tests may take."""

RUFF: Final = shutil.which("ruff", path=str(Path(sys.executable).parent))


class Project:
    """A folder with nothing but modules of servers and generated tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def serve(self, source: str, name: str = "shop") -> None:
        (self.folder / f"{name}.py").write_text(source, encoding="utf-8")

    def generate(self, recording: Recording, *options: str, name: str = "call", server: str = "shop") -> str:
        """Make a test of the last recorded call; gives its source."""
        lines = [json.loads(line) for line in recording.file.read_text(encoding="utf-8").splitlines()]
        file = self.folder / f"test_{name}.py"
        what = [lines[-1]["call"], "--server", f"{server}:server", *options, "--output", str(file)]
        assert main(["trace", "to-test", *what, str(recording.file)]) == 0
        return file.read_text(encoding="utf-8")

    def run(self) -> tuple[dict[str, set[str]], str]:
        """Run all tests, with this Python and without this repository's settings: how each ended, and the output."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ROUNDTRIP"))
        }
        # What else is installed here is not there in a fresh project.
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
        plugins = ["-p", "anyio", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-vv", "-rA", "--rootdir", str(self.folder), *plugins],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TAKES,
            check=False,
        )
        ended: dict[str, set[str]] = {}
        for how, name in re.findall(r"^(PASSED|FAILED|ERROR) test_(\w+)\.py", done.stdout, re.MULTILINE):
            ended.setdefault(name, set()).add(how.lower())
        return ended, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


BODY: list[Change] = [
    ("import Elicit", "import Context, Elicit"),
    (
        ") -> str:\n",
        "    ctx: Context,\n) -> str:\n    tip = await ctx.ask('tip', Elicit('A tip?', Sure), unwrap=True)\n",
    ),
    ("x {title}", "x {title}, {tip.ok}"),
]


def test_it_passes_unmodified_and_fails_when_a_question_is_reworded(recording: Recording, project: Project) -> None:
    source = changed(SHOP, *BODY)
    for era in ERAS:
        recording.call(source, era=era, answer=lambda params: {**REPLIES, "A tip?": {"ok": False}}[params.message])
        generated = project.generate(recording, name=era.name.lower())
        assert f'mode="{era.value}"' in generated
    project.serve(source)
    ended, out = project.run()
    assert ended == {"retry": {"passed"}, "live": {"passed"}}, out
    project.serve(changed(source, ("A tip?", "Something for the staff?")))
    ended, out = project.run()
    assert ended == {"retry": {"failed"}, "live": {"failed"}}, out
    assert "'tip'" in out
    assert "'A tip?'" in out
    assert "'Something for the staff?'" in out


def test_it_fails_for_another_form_another_result_and_another_set_of_questions(
    recording: Recording, project: Project
) -> None:
    changes: dict[str, Change] = {
        "first": ("Your name?", "Who are you?"),
        "form": ("le=10", "le=20"),
        "result": ('return f"{buyer.name}:', 'return f"for {buyer.name}:'),
        "gone": ("    sure: Annotated[Sure, Resolve(sure)],\n", ""),
    }
    for name, change in changes.items():
        project.serve(changed(SHOP, change), f"shop_{name}")
    project.serve(changed(MIXED, ("Think of a book", "Think of a film")), "mixed")
    expected: dict[str, set[str]] = {}
    for era in ERAS:
        short = era.name.lower()
        recording.call(era=era)
        for name in changes:
            project.generate(recording, name=f"{name}_{short}", server=f"shop_{name}")
            project.generate(recording, "--no-result", name=f"{name}_{short}_questions", server=f"shop_{name}")
            expected[f"{name}_{short}"] = {"failed"}
            expected[f"{name}_{short}_questions"] = {"passed" if name == "result" else "failed"}
        record_mixed(recording, era, MIXED)
        project.generate(recording, name=f"mixed_{short}", server="mixed")
        expected[f"mixed_{short}"] = {"failed"}
    ended, out = project.run()
    assert ended == expected, out


HOSTILE = "it's \"\"\" ''' \\ \n\t\x1b[31m\u2028\u202e%s \"); import os; os.abort()  #"


def test_calls_of_all_kinds_pass_as_tests_whatever_was_said_in_them(recording: Recording, project: Project) -> None:
    failing = changed(
        SHOP,
        ("import Elicit", "import ToolError, Elicit"),
        ("    RAN.append(title)", '    if title == "crash":\n        1 / 0\n    raise ToolError(f"no {title}")'),
    )
    hostile = changed(SHOP, ('"Your name?"', repr(HOSTILE)), ('return f"', f'return {HOSTILE!r} + f"'))
    for name, source in {"shop": SHOP, "failing": failing, "hostile": hostile, "mixed": MIXED}.items():
        project.serve(source, name)
    for era in ERAS:
        short = era.name.lower()
        recording.call(era=era, answer=lambda params: {**REPLIES, "Really 7?": "decline"}[params.message])
        project.generate(recording, name=f"refused_{short}")
        recording.call(failing, era=era)
        project.generate(recording, name=f"foreseen_{short}", server="failing")
        crashing = {**REPLIES, "How many of crash?": {"number": 7}}
        recording.call(
            failing,
            era=era,
            arguments={"title": "crash"},
            answer=lambda params, crashing=crashing: crashing[params.message],
        )
        project.generate(recording, name=f"crashed_{short}", server="failing")
        record_mixed(recording, era, MIXED)
        project.generate(recording, name=f"mixed_{short}", server="mixed")
        said = {"name": '"""\n\\'}
        recording.call(hostile, era=era, answer=lambda params, said=said: REPLIES.get(params.message, said))
        generated = project.generate(recording, name=f"hostile_{short}", server="hostile")
        assert all(char.isprintable() or char == "\n" for char in generated)
        assert "import os; os.abort()" in generated
        given = iter([{"number": 12}, {"number": 7}])
        recording.call(
            era=era,
            answer=lambda params, given=given: next(given) if "How many" in params.message else REPLIES[params.message],
        )
        generated = project.generate(recording, "--both", name=f"both_{short}")
        assert "(The last answer was not valid: number: " in generated
        assert "[play_retry, play_live]" in generated
    ended, out = project.run()
    assert len(ended) == 12
    assert all(how == {"passed"} for how in ended.values()), out


@pytest.mark.skipif(RUFF is None, reason="ruff is not installed")
def test_it_is_laid_out_as_a_formatter_would(recording: Recording, project: Project) -> None:
    project.serve(SHOP)
    for era in ERAS:
        short = era.name.lower()
        recording.call(era=era)
        for number, options in enumerate([(), ("--both",), ("--no-result",)]):
            project.generate(recording, *options, name=f"{short}_{number}")
        record_mixed(recording, era, MIXED)
        project.generate(recording, name=f"mixed_{short}")
    tests = [file.name for file in project.folder.glob("test_*.py")]
    for command in (["format", "--isolated", "--diff"], ["check", "--isolated", "--no-cache"]):
        done = subprocess.run(
            [str(RUFF), *command, *tests],
            cwd=project.folder,
            capture_output=True,
            text=True,
            timeout=TAKES,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert main(["trace", "to-test", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def last_call(recording: Recording) -> str:
    return json.loads(recording.file.read_text(encoding="utf-8").splitlines()[-1])["call"]


def test_what_cannot_be_made_a_test_is_refused_with_what_would_help(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call(reveal="arguments,questions")
    call = last_call(recording)
    told = refused(capsys, call, "--server", "shop:server", recording.file)
    assert "recorded without reveal; record with Server(trace=Recorder(path, reveal=" in told
    for name in ("shop.py:server", "shop", ":server", "shop:", "shop:import", "a b:server"):
        told = refused(capsys, call, "--server", name, recording.file)
        assert "cannot be imported by a test; write MODULE:SERVER" in told
    with pytest.raises(SystemExit) as ended:
        main(["trace", "to-test", call, str(recording.file)])
    assert ended.value.code == 2
    recording.call(answer=lambda params: {**REPLIES, "Your name?": "decline"}[params.message])
    told = refused(capsys, last_call(recording), "--both", "--server", "shop:server", recording.file)
    assert "round 1 of it goes differently in the other era; leave out --both" in told


NESTING = """

@server.tool()
async def outer(title: str) -> str:
    await server.call_tool("order", {"title": title})
    return "done"
"""


def test_a_live_call_from_within_which_another_asked_is_refused(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call(SHOP + NESTING, era=Era.LIVE, tool="outer")
    told = refused(capsys, last_call(recording), "--server", "shop:server", recording.file)
    assert "a function that it called asked over the open connection, too" in told
