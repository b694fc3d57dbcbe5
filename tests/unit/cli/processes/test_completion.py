"""`roundtrip completion` completes in real shells, and knows what the parser knows."""

import os
import pty
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli.parsing import OptionsAnywhere
from tests.kit.forks import is_readable
from tests.kit.programs import needs
from tests.kit.tables import check_each
from tests.unit.cli.completions import script

SECONDS: Final = 60


class Completing:
    """A shell that completes words in a folder."""

    def __init__(self, shell: str, text: str, folder: Path) -> None:
        self._shell = shell
        self._program = shell
        self._file = folder / f"completion.{shell}"
        self._file.write_text(text)
        self._folder = folder

    def __call__(self, *words: str) -> set[str]:
        """Return what may take the place of the last word."""
        return self._in_fish(words) if self._shell == "fish" else self._in_bash(words)

    def _in_fish(self, words: tuple[str, ...]) -> set[str]:
        said = self._run("--no-config", "-c", f"source {self._file}; complete -C 'roundtrip {' '.join(words)}'")
        return {line.partition("\t")[0] for line in said.splitlines()}

    def _in_bash(self, words: tuple[str, ...]) -> set[str]:
        line = " ".join(("roundtrip", *words))
        listed = " ".join(f"'{word}'" for word in ("roundtrip", *words))
        # As bash itself calls the function for these words.
        lines = [
            f"source {self._file}",
            "read -r -a how < <(complete -p roundtrip)",
            'function="${how[*]}"; function="${function##*-F }"; function="${function%% *}"',
            f"COMP_WORDS=({listed}); COMP_CWORD={len(words)}; COMP_LINE='{line}'; COMP_POINT={len(line)}",
            f"\"$function\" roundtrip '{words[-1]}' '{('roundtrip', *words)[-2]}'",
            r'printf "%s\n" "${COMPREPLY[@]}"',
        ]
        return {one.rstrip() for one in self._run("--norc", "--noprofile", "-c", "\n".join(lines)).splitlines() if one}

    def _run(self, *arguments: str) -> str:
        ran = subprocess.run(
            [self._program, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
        )
        assert not ran.stderr, ran.stderr
        return ran.stdout


@pytest.fixture(params=["bash", pytest.param("fish", marks=needs("fish"))])
def complete(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Completing:
    (tmp_path / "cinema.py").touch()
    return Completing(request.param, script(request.param, capsys), tmp_path)


def test_words_of_command_lines_are_completed(
    complete: Completing, whole: dict[tuple[str, ...], OptionsAnywhere]
) -> None:
    assert {words[0] for words in whole if len(words) == 1} <= complete("")
    assert "cinema.py" in complete("call", "cin")

    def check(words: tuple[str, ...], completed: set[str]) -> None:
        assert complete(*words) == completed

    check_each(
        [
            (("se",), {"serve"}),
            (("calls", "re"), {"retry", "rekey", "remind"}),
            (("serve", "--rel"), {"--reload"}),
            (("call", "--era", ""), {"retry", "live", "auto"}),
            (("calls", "stored", "--state", "c"), {"completed", "cancelled"}),
        ],
        check,
    )


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(shell, marks=needs(shell)) for shell in ("zsh", "fish"))])
def test_script_is_valid_in_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked = subprocess.run(
        [shell, "-n"], input=script(shell, capsys), capture_output=True, text=True, timeout=SECONDS
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@needs("zsh")
def test_person_completes_with_the_tabulator_in_zsh(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "completion.zsh").write_text(script("zsh", capsys))
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", "PS1": "> "}
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            os.write(ours, b"autoload -U compinit && compinit -u && eval \"$(cat completion.zsh)\" && print rea''dy\n")
            _read_until(ours, "\nready")
            for typed, completed in (
                ("roundtrip completion fi\t", "roundtrip completion fish "),
                ("roundtrip serve --rel\t", "roundtrip serve --reload "),
                ("roundtrip calls rek\t", "roundtrip calls rekey "),
                ("roundtrip call --era ret\t", "roundtrip call --era retry "),
            ):
                os.write(ours, typed.encode())
                _read_until(ours, completed)
                # Ctrl-U: an empty line.
                os.write(ours, b"\x15")
        finally:
            process.kill()
            os.close(ours)


def _read_until(terminal: int, text: str) -> None:
    seen, deadline = "", time.monotonic() + SECONDS
    while text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r", "", seen):
        assert is_readable(terminal, deadline - time.monotonic()), f"{text!r} did not come; what came: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
