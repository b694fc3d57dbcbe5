"""`roundtrip check` plays recorded calls on the present code, and reports repeated questions and divergences."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from roundtrip.cli import main
from roundtrip.testing import Era, LegByLeg
from tests.interaction.trace.deploys import (
    BODY,
    REPLIES,
    SHOP,
    TALKS,
    Change,
    Recording,
    changed,
    check,
    checked,
    deploy,
    dream,
    last_call,
    module_of,
)
from tests.kit.tables import check_each

RENAMED: Change = ("Resolve(buyer)", 'Resolve(buyer, name="who")')
KNOWN: Change = ("Resolve(buyer)", 'Resolve(buyer, name="who", former_names=("buyer",))')
WITHOUT_SURE: Change = ("    sure: Annotated[Sure, Resolve(sure)],\n", "")


def test_unchanged_code_is_compatible_without_running_bodies_or_recording(
    recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording.call()
    # Calls of the probe are left out.
    text = recording.file.read_text(encoding="utf-8")
    probes = text.replace('"tool":"order"', '"tool":"roundtrip_probe"').replace(last_call(recording), "probe")
    recording.file.write_text(text + probes, encoding="utf-8")
    before = recording.file.read_bytes()
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(recording.file))
    out = checked(recording, capsys)
    assert "order: compatible\n1 call: 1 compatible, 0 asking again, 0 diverging, 0 not checked\n" in out
    assert module_of("changed.py:server").RAN == []
    assert recording.file.read_bytes() == before


def test_answer_that_no_longer_counts_is_asked_again(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.call()

    def check(changes: list[Change], found: list[str]) -> None:
        out = checked(recording, capsys, *changes)
        assert "order: asks 1 again\n" in out
        assert [text for text in found if text not in out] == []

    check_each(
        [
            (
                [("Your name?", "Who are you?")],
                ["'buyer': reworded", "recorded: 'Your name?'", "now:      'Who are you?'"],
            ),
            (
                [("le=10", "le=20")],
                ["'copies': schema changed", "- properties.number.maximum: 10", "+ properties.number.maximum: 20"],
            ),
            (
                [
                    ("import BaseModel, Field", "import AfterValidator, BaseModel, Field"),
                    (
                        "class Name(BaseModel):\n    name: str",
                        "def long(name: str) -> str:\n    if len(name) < 4:\n        raise ValueError('too short')\n"
                        "    return name\n\n\nclass Name(BaseModel):\n    name: Annotated[str, AfterValidator(long)]",
                    ),
                ],
                ["'buyer': its answer is no longer valid", "name: Value error, too short"],
            ),
            ([RENAMED], ["'buyer': renamed without former_names=, now 'who'"]),
            ([KNOWN, ("Your name?", "Who are you?")], ["'buyer': reworded, now 'who'"]),
        ],
        check,
    )


def test_another_way_is_a_divergence_at_its_round(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.call()

    def check(changes: list[Change], round_: int, found: list[str]) -> None:
        out = checked(recording, capsys, *changes)
        assert f"order: diverges at round {round_}\n" in out
        assert [text for text in found if text not in out] == []
        assert "\x1b" not in out

    check_each(
        [
            ([WITHOUT_SURE], 2, ["recorded: asks 'sure'", "now:      runs the body"]),
            (
                [
                    (
                        "async def sure(copies: Annotated[Copies, Resolve(copies)]) -> Elicit[Sure]:\n"
                        '    return Elicit(f"Really {copies.number}?", Sure)',
                        'async def sure() -> Elicit[Sure]:\n    return Elicit("Really 7?", Sure)',
                    )
                ],
                1,
                [
                    "recorded: asks 'buyer', 'copies'",
                    "now:      asks 'buyer', 'copies', 'sure'",
                    "'sure' says 'Really 7?'",
                ],
            ),
            ([("@server.tool()\n", "")], 1, ["does not accept the call: Unknown tool: order"]),
            (
                [
                    ("    title: str,", "    isbn: str,"),
                    ("(title: str)", "(isbn: str)"),
                    ("{title}", "{isbn}"),
                    ("append(title)", "append(isbn)"),
                ],
                1,
                ["does not accept the call: Error executing tool order: 1 validation error"],
            ),
            (
                [('return Elicit("Your name?", Name)', 'raise RuntimeError("no \\x1b[31mdatabase")')],
                1,
                ["now:      fails: RuntimeError: no \\x1b[31mdatabase"],
            ),
        ],
        check,
    )


def test_a_pure_refactoring_is_compatible(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.call()

    def check(changes: list[Change]) -> None:
        assert "order: compatible\n" in checked(recording, capsys, *changes)

    check_each(
        [
            [("    buyer: Annotated", "    by: Annotated"), ("{buyer.name}", "{by.name}")],
            [
                ("    buyer: Annotated[Name, Resolve(buyer)],\n", ""),
                (
                    "    sure: Annotated[Sure, Resolve(sure)],\n",
                    "    sure: Annotated[Sure, Resolve(sure)],\n    buyer: Annotated[Name, Resolve(buyer)],\n",
                ),
            ],
            [
                (
                    "async def copies(title: str) -> Elicit[Copies]:\n"
                    '    return Elicit(f"How many of {title}?", Copies)',
                    'def wording(title: str) -> str:\n    return f"How many of {title}?"\n\n\n'
                    "async def copies(text: Annotated[str, Resolve(wording)]) -> Elicit[Copies]:\n"
                    "    return Elicit(text, Copies)",
                )
            ],
            [("async def buyer()", "async def person()"), ("Resolve(buyer)", 'Resolve(person, name="buyer")')],
            [KNOWN],
            [("    number: int =", '    """Copies."""\n\n    number: int =')],
            [('return f"{buyer.name}', 'return f"for {buyer.name}')],
        ],
        check,
    )


def test_waiting_call_is_checked_with_its_pending_questions(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(changes: list[Change], verdict: str) -> None:
        server = recording.load(SHOP)

        async def play() -> None:
            hopper = LegByLeg([server])
            await hopper.leg("order", {"title": "Dune"})
            answers = {"buyer": REPLIES["Your name?"], "copies": REPLIES["How many of Dune?"]}
            await hopper.leg("order", {"title": "Dune"}, answers=answers, state=hopper.token)

        anyio.run(play)
        assert f"order: {verdict}\n" in checked(recording, capsys, *changes)

    check_each(
        [
            ([("Really {", "Sure about {")], "asks 1 again"),
            ([("Resolve(sure)", 'Resolve(sure, name="certain")')], "asks 1 again"),
            ([("Resolve(sure)", 'Resolve(sure, name="certain", former_names=("sure",))')], "compatible"),
            ([WITHOUT_SURE], "diverges at round 2"),
        ],
        check,
    )


def test_call_whose_client_failed_a_question_is_checked_as_waiting(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(params: Any) -> Any:
        if params.message == "Really 7?":
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        return REPLIES[params.message]

    with pytest.RaisesGroup(MCPError, flatten_subgroups=True):
        recording.call(era=Era.LIVE, answer=answer)
    assert "order: compatible\n" in checked(recording, capsys)
    assert "order: diverges at round 2\n" in checked(recording, capsys, WITHOUT_SURE)


def test_check_continues_after_a_failure_and_filters_by_tool(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call()
    recording.call(era=Era.LIVE)
    target = deploy(recording.folder, "changed", changed(SHOP, ("Your name?", "Who?")))
    code, out = check(capsys, target, str(recording.file))
    assert code == 1
    assert out.count("'buyer': reworded") == 2
    assert out.endswith("2 calls: 0 compatible, 2 asking again, 0 diverging, 0 not checked\n")
    code, out = check(capsys, target, "--allow", "asks-again", str(recording.file))
    assert code == 0
    code, out = check(capsys, target, "--json", str(recording.file))
    assert code == 1
    told: list[dict[str, Any]] = json.loads(out)
    assert [(one["tool"], one["verdict"]) for one in told] == [("order", "asks again")] * 2
    assert [again["cause"] for one in told for again in one["asks_again"]] == ["reworded"] * 2
    assert main(["check", target, "--tool", "sell", str(recording.file)]) == 2
    assert "no calls of 'sell'" in capsys.readouterr().err


def test_unrevealed_recording_is_reported_with_advice(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    recording.call(reveal="")
    target = deploy(recording.folder, "changed", SHOP)
    code, out = check(capsys, target, str(recording.file))
    assert code == 2
    assert "order: not checked: its values are not revealed; record with Server(trace=Recorder(path, reveal=" in out
    recording.call()
    code, out = check(capsys, target, str(recording.file))
    assert code == 3
    assert out.endswith("2 calls: 1 compatible, 0 asking again, 0 diverging, 1 not checked\n")
    assert check(capsys, target, "--allow", "not-checked", str(recording.file))[0] == 0


def test_call_whose_process_died_in_its_body_is_not_checked(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call()
    *lines, last = recording.file.read_text().splitlines()
    error = {"type": "OutcomeUnknown", "text": {"digest": "abcdefghijkl", "bytes": 12}}
    ended = json.loads(last) | {"state": "failed", "result": None, "error": error, "bodies": 0}
    recording.file.write_text("\n".join([*lines, json.dumps(ended)]) + "\n")
    code, out = check(capsys, deploy(recording.folder, "same", SHOP), str(recording.file))
    assert (code, "order: not checked: its process died while the body was running" in out) == (2, True)
    assert main(["trace", "show", "last", str(recording.file)]) == 0
    assert "no end of the body is recorded" in capsys.readouterr().out


def test_body_is_replayed_up_to_its_last_question_without_its_steps(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = {"How many of Dune?": {"value": 7}, "63 euros?": {"value": True}}
    for era in Era.RETRY, Era.LIVE:
        recording.call(BODY, era=era, answer=lambda params: replies[params.message])
    sure, tool = '    sure = await ctx.ask("sure", f"{paid} euros?", bool)\n', "@server.tool()\n"
    other = "@server.tool()\ndef other() -> None:\n    RAN.append('other')\n\n\n"

    def check(changes: list[Change], parts: list[str], ran: list[str]) -> None:
        out = checked(recording, capsys, *changes, source=BODY)
        assert [part for part in parts if out.count(part) != 2] == [], out
        assert [*ran, *ran] == module_of("changed.py:server").RAN

    check_each(
        [
            ([], ["order: compatible\n"], []),
            ([("How many", "How much")], ["order: asks 1 again\n  'copies': reworded", "'How much of Dune?'"], []),
            ([(" euros?", " dollars?")], ["asks 1 again\n  'sure': reworded", "now:      '63 dollars?'"], []),
            ([('euros?", bool', 'euros?", str')], ["asks 1 again\n  'sure': schema changed"], []),
            ([('"copies"', '"number"')], ["'copies': renamed without former_names=, now 'number'"], []),
            ([('"sure"', '"safe"'), ("bool", 'bool, former_names=["sure"]')], ["order: compatible\n"], []),
            ([('await ctx.ask("copies", f"How many of {title}?", int)', "7")], ["now:      runs the step 'pay'"], []),
            ([(sure, f'    await ctx.ask("more", "More?", bool)\n{sure}')], ["now:      asks 'more'\n"], []),
            ([(", ctx: Context", ""), ("await ctx", "await title")], ["at round 1\n", "now:      runs the body\n"], []),
            # Only the code after a question that is gone may run: nothing in it could end the leg.
            ([(sure, "    sure = True\n")], ["diverges at round 2\n", "now:      runs to its end\n"], ["sent"]),
            (
                [('step("pay"', 'step("bill"')],
                ["not checked: the body's questions from round 2 on: the body reaches"],
                [],
            ),
            ([("tool()", "tool(exactly_once=True)")], ["from round 1 on: the body must run only once, so a"], []),
            (
                [(tool, other + tool), (sure, f"    await server.call_tool('other', {{}})\n{sure}")],
                ["it calls tool"],
                [],
            ),
        ],
        check,
    )


def test_answers_that_end_or_repeat_a_call_are_checked(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call(answer=lambda params: {**REPLIES, "Really 7?": "decline"}[params.message])
    assert "order: compatible\n" in checked(recording, capsys)
    out = checked(
        recording,
        capsys,
        ("sure: Annotated[Sure, Resolve(sure)]", "sure: Annotated[ElicitationResult[Sure], Resolve(sure)]"),
        ("import Elicit", "import ElicitationResult, Elicit"),
    )
    assert "order: diverges at round 3\n" in out
    assert "recorded: declines the call, because the user gave no answer\n    now:      runs the body\n" in out
    recording.file.unlink()
    given = iter([{"number": 12}, {"number": 7}])
    recording.call(answer=lambda params: next(given) if "How many" in params.message else REPLIES[params.message])
    assert "order: compatible\n" in checked(recording, capsys)
    assert "order: asks 1 again\n  'copies': schema changed" in checked(recording, capsys, ("le=10", "le=20"))


def test_samples_roots_and_pages_are_checked_too(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    dream(recording.load(TALKS), Era.RETRY)
    out = checked(recording, capsys, ("Think of a book", "Think of a film"), source=TALKS)
    assert "dream: asks 1 again\n  'think': reworded" in out
    out = checked(recording, capsys, ("example/pay", "example/checkout"), source=TALKS)
    assert "recorded: 'Pay here <https://shop.example/pay>'" in out


def test_resolvers_that_reach_other_systems_can_be_replaced(
    recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stocked = changed(
        SHOP,
        (
            "async def copies(title: str)",
            "def stock() -> int:\n    return 3\n\n\n"
            "async def copies(title: str, stock: Annotated[int, Resolve(stock)])",
        ),
        ("How many of {title}?", "How many of {title}? ({stock})"),
    )
    recording.call(stocked, answer=lambda params: {"How many of Dune? (3)": {"number": 7}, **REPLIES}[params.message])
    (recording.folder / "shop_now.py").write_text(changed(stocked, ("return 3", "raise OSError('no network')")))
    fakes = "from shop_now import stock\n\nFAKES = {stock: lambda: 3}\nNONE = {len: max}\n"
    (recording.folder / "shop_fakes.py").write_text(fakes)
    target = str(recording.folder / "shop_now.py")
    code, out = check(capsys, target, str(recording.file))
    assert (code, "fails: OSError: no network" in out) == (1, True)
    # The replacements import the server's file, which must not run again under its own name.
    code, out = check(capsys, target, "--overrides", f"{recording.folder / 'shop_fakes.py'}:FAKES", str(recording.file))
    assert (code, "order: compatible\n" in out) == (0, True)
    for wrong in ("shop_fakes", "shop_fakes:stock", "shop_fakes:NONE", "shop_nowhere:FAKES"):
        assert main(["check", "shop_now:server", "--overrides", wrong, str(recording.file)]) == 2
        assert "--overrides" in capsys.readouterr().err


FAILING = """\
from contextlib import asynccontextmanager


@asynccontextmanager
async def life(server):
    raise OSError("no database")
    yield


server = Server("shop", lifespan=life)
"""


def test_unusable_server_or_file_exits_with_2(
    recording: Recording, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recording.call()
    broken = changed(SHOP, ('server = Server("shop", keys=[b"k" * 32])', FAILING))
    assert main(["check", deploy(recording.folder, "changed", broken), str(recording.file)]) == 2
    assert "the server failed, or could not start: OSError: no database" in capsys.readouterr().err
    assert main(["check", "nowhere.py:server", str(recording.file)]) == 2
    assert main(["check", "changed.py:server", "nowhere.jsonl"]) == 2
    capsys.readouterr()
    assert main(["check", str(recording.file), "changed.py:server"]) == 2
    assert "the server must come first" in capsys.readouterr().err


def test_transcript_text_reaches_the_terminal_only_as_text(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = changed(SHOP, ("Your name?", "\\x1b]0;owned\\x07 name?\\u202e"))
    recording.call(hostile, answer=lambda params: REPLIES.get(params.message, {"name": "Ada"}))
    target = deploy(recording.folder, "changed", SHOP)
    for options in ([], ["--json"]):
        code, out = check(capsys, target, *options, str(recording.file))
        assert code == 1
        assert all(char.isprintable() or char == "\n" for char in out)
        assert "owned" in out
