"""`roundtrip trace to-test` writes a test that passes in a fresh project, and fails when anything goes otherwise."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from roundtrip.client.legs import ERAS
from roundtrip.testing import CANCEL, DECLINE, IGNORE, LEAVE, Era, LegRequest, User
from tests.interaction.trace.deploys import REPLIES, SHOP, TALKS, Change, Recording, changed, dream, last_call
from tests.interaction.trace.projects import TAKES, Project

RUFF: Final = shutil.which("ruff", path=str(Path(sys.executable).parent))


def test_generated_test_fails_for_other_forms_results_and_questions(recording: Recording, project: Project) -> None:
    changes: dict[str, Change] = {
        "first": ("Your name?", "Who are you?"),
        "form": ("le=10", "le=20"),
        "result": ('return f"{buyer.name}:', 'return f"for {buyer.name}:'),
        "gone": ("    sure: Annotated[Sure, Resolve(sure)],\n", ""),
    }
    for name, change in changes.items():
        project.serve(changed(SHOP, change), f"shop_{name}")
    expected: dict[str, set[str]] = {}
    for era in ERAS:
        short = era.name.lower()
        recording.call(era=era)
        for name in changes:
            project.generate(recording, name=f"{name}_{short}", server=f"shop_{name}")
            project.generate(recording, "--no-result", name=f"{name}_{short}_questions", server=f"shop_{name}")
            expected[f"{name}_{short}"] = {"failed"}
            expected[f"{name}_{short}_questions"] = {"passed" if name == "result" else "failed"}
    ended, out = project.run()
    assert ended == expected, out


HOSTILE = "it's \"\"\" ''' \\ \n\t\x1b[31m\u2028\u202e%s \"); import os; os.abort()  #"


def test_generated_tests_with_hostile_texts_or_invalid_answers_pass(recording: Recording, project: Project) -> None:
    hostile = changed(SHOP, ('"Your name?"', repr(HOSTILE)), ('return f"', f'return {HOSTILE!r} + f"'))
    project.serve(SHOP, "shop")
    project.serve(hostile, "hostile")
    expected: dict[str, set[str]] = {}
    for era in ERAS:
        short = era.name.lower()
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
        assert '(eras="both")' in generated
        expected |= {f"hostile_{short}": {"passed"}, f"both_{short}": {"passed"}}
    ended, out = project.run()
    assert ended == expected, out


def record_talks(project: Project, recording: Recording, servers: Sequence[str]) -> None:
    """Record unusual calls on both eras, each as a test of these servers, named by era, server and call."""
    server: Any = recording.load(TALKS)
    long = {"text": "x" * 90}
    for era in ERAS:
        short = era.name.lower()

        def record(name: str, tool: str, answers: Any = None, short: str = short, era: Era = era, **more: Any) -> None:
            leg = LegRequest(tool, more.pop("arguments", {}), meta=more.pop("meta", None))
            before = recording.file.read_text(encoding="utf-8") if recording.file.exists() else ""
            anyio.run(User(server, answers, era=era, **more).begin, leg)
            assert last_call(recording) not in before
            for module in servers:
                project.generate(recording, name=f"{short}_{module}_{name}", server=module)

        dream(server, era)
        for module in servers:
            project.generate(recording, name=f"{short}_{module}_dreams", server=module)
        record("talks", "talk", {"one": True, "two": DECLINE})
        record("declined", "choose", {"size": DECLINE, "colour": "red"})
        record("cancelled", "need", {"size": CANCEL, "colour": "red"}, allow_unused=True)
        record("pays", "pay", {"page": CANCEL})
        record("falls_back", "fall_back", missing_capabilities={"elicitation"})
        record("cannot_be_asked", "need", missing_capabilities={"elicitation"}, allow_error=True)
        record("ends_with_an_error", "end", {"one": True}, allow_error=True)
        record("version", "repeat", arguments={"text": "a"}, meta={"roundtrip/version": "1"})
        record("long", "repeat", arguments=long)
        record("long_version", "repeat", arguments=long, meta={"roundtrip/version": "1"})
        if era is Era.RETRY:
            record("left", "talk", {"one": True, "two": LEAVE})
            record("left_at_once", "need", {"size": LEAVE, "colour": LEAVE})
            record("ignored", "need", [{"size": IGNORE, "colour": "red"}, {"size": 7}])


OTHERWISE: dict[str, tuple[Change, set[str]]] = {
    "another_order": (
        (
            """\
    one = await ctx.ask_outcome("one", "One?", bool)
    two = await ctx.ask_outcome("two", "Two?", bool)
""",
            """\
    two = await ctx.ask_outcome("two", "Two?", bool)
    one = await ctx.ask_outcome("one", "One?", bool)
""",
        ),
        {"retry_talks", "live_talks", "retry_left"},
    ),
    "another_sample": (("Think of a book", "Think of a film"), {"retry_dreams", "live_dreams"}),
    "another_page": (("pay.example", "pay.invalid"), {"retry_pays", "live_pays"}),
    "another_fallback": (("fallback=3", "fallback=4"), {"retry_falls_back", "live_falls_back"}),
    "another_error": (("out of film", "out of order"), {"retry_ends_with_an_error", "live_ends_with_an_error"}),
    "no_question": (
        (
            "size: Annotated[int, Resolve(size)], colour: Annotated[str, Resolve(colour)]",
            'size: int = 7, colour: str = "red"',
        ),
        {
            *(f"{era}_{what}" for era in ("retry", "live") for what in ("cancelled", "cannot_be_asked")),
            "retry_left_at_once",
            "retry_ignored",
        },
    ),
    "another_version": (
        ('return "first"', 'return "third"'),
        {f"{era}_{what}" for era in ("retry", "live") for what in ("version", "long_version")},
    ),
}


def test_generated_tests_pass_until_the_call_differs(recording: Recording, project: Project) -> None:
    project.serve(TALKS, "unchanged")
    for how, (change, _) in OTHERWISE.items():
        project.serve(changed(TALKS, change), how)
    record_talks(project, recording, ["unchanged", *OTHERWISE])
    ended, out = project.run()
    assert len(ended) == 25 * (len(OTHERWISE) + 1)
    failed = {name for name, how in ended.items() if how != {"passed"}}
    assert [name for name in failed if "_unchanged_" in name] == [], out
    for how, (_, calls) in OTHERWISE.items():
        assert {name for name in failed if f"_{how}_" in name} == {
            name for name in ended if f"_{how}_" in name and name.replace(f"_{how}", "") in calls
        }, out


@pytest.mark.skipif(RUFF is None, reason="ruff is not installed")
def test_generated_test_satisfies_formatter_linter_and_type_checker(recording: Recording, project: Project) -> None:
    for name, source in {"shop": SHOP, "talks": TALKS}.items():
        project.serve(source, name)
    for era in ERAS:
        short = era.name.lower()
        recording.call(era=era)
        for number, options in enumerate([(), ("--both",), ("--no-result",)]):
            project.generate(recording, *options, name=f"{short}_{number}")
    record_talks(project, recording, ["talks"])
    tests = [file.name for file in project.folder.glob("test_*.py")]
    (project.folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    for command in (
        [str(RUFF), "format", "--isolated", "--line-length=120", "--diff"],
        [str(RUFF), "check", "--isolated", "--line-length=120", "--extend-select=I,B,PT,SIM,UP,RUF", "--no-cache"],
        pyright,
    ):
        done = subprocess.run(
            [*command, *tests], cwd=project.folder, capture_output=True, text=True, timeout=TAKES, check=False
        )
        assert done.returncode == 0, done.stdout
