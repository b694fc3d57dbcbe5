"""`roundtrip trace token` shows one token, takes it only where no shell remembers it, and obeys nothing in it."""

import inspect
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

import pytest
from mcp.server.request_state import AESGCMRequestStateCodec

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.cli.trace.token import configure, run
from roundtrip.machine.journal import Action, Chain, Entry
from roundtrip.server.key_files import KeyFile, Role, RoledKey
from tests.kit.secrets import BORN, NEW, OTHER, claims, codec, journal, payload, pin_of
from tests.kit.tables import check_each
from tests.unit.cli.trace.tokens import HOSTILE, SECRET, TOKEN, hostile_token


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def give(monkeypatch: pytest.MonkeyPatch, token: str | bytes) -> None:
    raw = token.encode() if isinstance(token, str) else token
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(raw)))


def trace(*arguments: str) -> int:
    parser = OptionsAnywhere()
    configure(parser)
    return run(parser.parse_args(arguments))


def failure(*arguments: str, code: int = 2) -> str:
    with pytest.raises(CommandFailed) as caught:
        trace(*arguments)
    assert caught.value.exit_code == code
    return str(caught.value)


def test_a_token_is_read_from_standard_input_without_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, TOKEN + "\n")
    assert trace("-") == 0
    shown = capsys.readouterr().out
    for said in (
        "signature  not checked, because there are no keys ($ROUNDTRIP_KEYS, $ROUNDTRIP_KEY_FILE or --keys-file)",
        "written    2023-11-14T22:13:20.000Z (",
        " ago)",
        "method     tools/call",
        f"target     digest {claims()[1:5].hex()}",
        f"audience   digest {claims(audience='shop')[-4:].hex()}",
        "principal  none",
        "call       call-1",
        "leg        2, round 2",
        '  question_0: accepted {"text": "aaaaaaaaaa"}',
        "  confirm (invalid answers: 1, answers lost to rewording: 0)",
        "sealed     a part that can be opened only if the signature is valid",
    ):
        assert said in shown
    assert SECRET not in shown
    assert "\x1b" not in shown


def test_an_intent_is_shown_only_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(intent: Chain, text: str, data: str | None) -> None:
        token = codec().seal(payload(replace(journal(), chain=intent)))
        give(monkeypatch, token)
        assert trace("-") == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "intent" in line]
        assert lines == ([f"intent     {text}"] if text else [])
        give(monkeypatch, token)
        assert trace("-", "--json") == 0
        assert json.loads(capsys.readouterr().out)["journal"].get("intent") == data

    check_each(
        [
            (Chain.NONE, "", None),
            (Chain.FIRST, "once per intent: first chain", "first"),
            (Chain.AGAIN, "once per intent: begun again", "again"),
        ],
        check,
    )


OLDER: Final = "b" * 64


@pytest.mark.parametrize("how", ["keys", "variable", "option", "lines"])
def test_token_file_is_verified_with_keys_from_each_place(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, token = tmp_path / "keys", tmp_path / "token"
    since = datetime(2026, 11, 18, tzinfo=UTC)
    made = KeyFile(RoledKey(Role.SIGNS, "a" * 64, since), RoledKey(Role.FORMER, OLDER, since))
    path.write_bytes(f"\n{'a' * 64}\r\n{OLDER}\n\n".encode() if how == "lines" else made.text().encode())
    path.chmod(0o600)
    token.write_text(codec(OLDER.encode()).seal(payload(journal(computed=SECRET), OLDER.encode())), encoding="utf-8")
    if how == "variable":
        monkeypatch.setenv("ROUNDTRIP_KEY_FILE", str(path))
    else:
        # Keys that an option names count before the environment.
        monkeypatch.setenv("ROUNDTRIP_KEYS", f"{'a' * 64}, {OLDER}\n" if how == "keys" else "not this one")
    option = ["--keys-file", str(path)] if how in ("option", "lines") else []
    assert trace(str(token), *option) == 0
    shown = capsys.readouterr().out
    assert "signature  valid, by key 2 of 2 (1 is the newest)" in shown
    assert f'  quote: "{SECRET}"' in shown
    assert "author's   no request_state" in shown
    assert trace(str(token), *option, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["signature"], found["key"], found["journal"]["written"]) == ("valid", 2, BORN)
    assert found["sealed"]["computed"] == {"quote": SECRET}


def test_missing_empty_and_unusable_keys_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none, empty = str(tmp_path / "none"), tmp_path / "empty"
    empty.write_text("\n \n", encoding="utf-8")

    def check(variables: dict[str, str], arguments: list[str], told: str) -> None:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            give(patch, TOKEN)
            failed = failure("-", *arguments)
        assert told in failed
        assert "too-short-a-key" not in failed

    check_each(
        [
            ({}, ["--keys-file", none], "cannot read the file with the keys"),
            ({}, ["--keys-file", str(empty)], "contains no keys"),
            ({"ROUNDTRIP_KEYS": "too-short-a-key"}, [], "keys[0] must have at least 32 random secret bytes, got 15"),
            ({"ROUNDTRIP_KEY_FILE": none}, [], "ROUNDTRIP_KEY_FILE: the key file"),
            ({"ROUNDTRIP_KEY_FILE": none, "ROUNDTRIP_KEYS": "a" * 64}, [], "are both set; unset one of them"),
        ],
        check,
    )


def test_unverified_token_shows_its_reason_and_exits_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(as_json: bool, token: str, key: bytes, reason: str) -> None:
        (tmp_path / "keys").write_bytes(key)
        give(monkeypatch, token)
        assert trace("-", "--keys-file", str(tmp_path / "keys"), *(["--json"] if as_json else [])) == 1
        shown = capsys.readouterr().out
        assert SECRET not in shown
        if as_json:
            assert json.loads(shown)["reason"] == reason
        else:
            assert f"rejected   {reason}" in shown
            assert "signature  invalid: anyone who held the token may have written what follows" in shown
            assert "call       call-1" in shown

    check_each(
        [
            (as_json, token, key, reason)
            for as_json in [False, True]
            for token, key, reason in [(TOKEN, OTHER, "unknown key"), (TOKEN[:-22] + "A" * 22, NEW, "tampered")]
        ],
        check,
    )


def test_token_whose_state_cannot_be_read_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(token: str, told: str, hidden: str) -> None:
        give(monkeypatch, token)
        assert trace("-") == 0
        shown = capsys.readouterr().out
        assert told in shown
        assert hidden not in shown

    unreadable = "call       the token has no journal that this version can read"
    check_each(
        [
            (codec(encrypt=True).seal(payload(journal())), "The whole token is encrypted", "tools/call"),
            (codec().seal(claims() + b"[2]"), unreadable, "sealed"),
        ],
        check,
    )


def test_a_token_as_an_argument_is_rejected_and_not_repeated() -> None:
    def check(prefix: str) -> None:
        for token in (TOKEN, AESGCMRequestStateCodec([NEW]).seal(b"state"), "rt1." + "A" * 40):
            told = failure(prefix + token)
            assert "shell history" in told
            assert "roundtrip trace token -" in told
            assert token[:20] not in told

    check_each(["", " ", "state="], check)


def test_missing_file_error_does_not_repeat_a_possible_secret(tmp_path: Path) -> None:
    assert failure("no-such-file") == "cannot read the file with the token: No such file or directory"
    assert "Is a directory" in failure(str(tmp_path))
    assert "File name too long" in failure("A" * 5000)
    assert "null" in failure("a\0b")


def test_invalid_token_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(given: bytes, told: str, code: int) -> None:
        give(monkeypatch, given)
        assert told in failure("-", code=code)

    check_each(
        [
            (b" \n", "there is no token", 2),
            (b"let me in", "(malformed)", 1),
            (b"\xff\xfe", "(malformed)", 1),
            (b"r3sAAAA." + b"A" * 66_000 + b"." + b"A" * 22, "(oversized)", 1),
            (b"A" * 100_000, "at most 65.0 KiB", 2),
            (b"r3sAAAA.A." + b"A" * 22, "(unknown format)", 1),
            (b"r1pAAAA.AAAA." + b"A" * 43, "(malformed)", 1),
            (
                AESGCMRequestStateCodec([NEW]).seal(b"state").encode(),
                "this is not a roundtrip token, but an SDK token",
                1,
            ),
            (b"rt1.AAAA." + b"A" * 43, "but a ticket", 1),
        ],
        check,
    )


def deep(levels: int) -> str:
    entries = {"k": Entry(Action.ACCEPT, pin_of("m"), 7)}
    empty = payload(replace(journal(), entries=entries), deflate=False)
    assert empty.count(b'{"k":7}') == 1
    return codec().seal(empty.replace(b'{"k":7}', b'{"k":' + b"[" * levels + b"]" * levels + b"}"))


LEVELS = 200
"""Depth of nested values in the test; deeper values take longer to print."""


def outcome(*options: str) -> str:
    try:
        trace("-", *options)
    except CommandFailed as failed:
        return str(failed)
    return "shown"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_deeply_nested_data_is_an_error_without_a_traceback(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[str] = []
    give(monkeypatch, deep(1))
    assert outcome(*options) == "shown"
    # How deep is too deep depends on how deep the caller is, so this goes through all that may be.
    limit = len(inspect.stack(0)) + LEVELS
    usual = sys.getrecursionlimit()
    for levels in range(1, LEVELS + 50, 3):
        give(monkeypatch, deep(levels))
        sys.setrecursionlimit(limit)
        try:
            outcomes.append(outcome(*options))
        finally:
            sys.setrecursionlimit(usual)
    assert outcomes[0] == "shown"
    assert set(outcomes) <= {"shown", "the token's content is nested too deeply to show"}


def test_nothing_in_a_token_reaches_the_screen_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(options: list[str]) -> None:
        give(monkeypatch, hostile_token())
        assert trace("-", *options) == 0
        shown = capsys.readouterr().out
        assert not set(HOSTILE) & set(shown) - set("[31m")
        assert "[31m" in shown

    check_each([[], ["--json"]], check)
