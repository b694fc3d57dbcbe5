"""A person at a real pseudo-terminal answers forms, pages and questions for a model, on both eras."""

import re
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals", allow_module_level=True)

from tests.interaction.calls.servers import ours
from tests.interaction.calls.sessions import AtTerminal, command, person
from tests.kit.hosts import name_of

each_era = pytest.mark.parametrize("era", ["retry", "live"])


def choose_a_seat(at: AtTerminal) -> None:
    at.reply("type its number:", "2")
    at.reply("by commas, at least 1 of them:", "1, 3")
    at.reply("Enter for 1:", "")
    at.reply("such as ada@example.com:", "ada@example.com")
    at.reply("Enter to leave it out:", "")


@each_era
def test_form_is_filled_by_field_and_stdout_has_the_result(railway: str, era: str) -> None:
    with person(railway, "book", "train=X1", "people=2", "--era", era) as at:
        shown = at.wait_for("type its number:")
        at.type("2")
        assert "| Which seat would you like?" in shown
        assert ":decline declines, :cancel cancels" in shown
        assert re.search(r"Seat \(required\)\n  1\) By the window \[w\]\n  2\) On the aisle \[a\]\n", shown)
        at.reply("by commas, at least 1 of them:", "1, 3")
        shown = at.wait_for("a whole number, 0 to 3, Enter for 1:")
        at.type("")
        assert "-> Soup, Cake" in shown
        assert "Pieces of luggage [bags]\n  They go under the seat\n" in shown
        at.reply("such as ada@example.com:", "ada@example.com")
        at.reply("Enter to leave it out:", "")
        shown = at.wait_for("y or n:")
        at.type("y")
        assert "| Book a with 1 pieces?" in shown
        assert ("(consent)" in shown) == (era == "retry")
        ended = at.end()
    assert (ended.code, ended.out) == (0, "X1 for 2: a soup+cake 1 ada@example.com None\n")


@pytest.mark.parametrize(
    ("era", "way_out"), [("retry", ":decline"), ("live", ":decline"), ("retry", ":cancel"), ("live", "\x04")]
)
def test_declining_or_breaking_off_sets_the_exit_code(railway: str, era: str, way_out: str) -> None:
    with person(railway, "book", "train=X1", "people=2", "--era", era) as at:
        at.reply("type its number:", "1")
        at.reply("separated by commas", way_out)
        ended = at.end()
    assert ended.code == 3
    assert ("decline" if way_out == ":decline" else "cancel") in ended.out


@pytest.mark.parametrize(("era", "typed", "opened"), [("retry", "y", True), ("live", "y", True), ("live", "m", False)])
def test_a_page_is_opened_only_if_the_person_wants_that(
    railway: str, era: str, typed: str, opened: bool, tmp_path: Path
) -> None:
    with person(railway, "enter", "--era", era, env=browser_noting(tmp_path)) as at:
        at.reply(":cancel cancels):", typed)
        ended = at.end()
    assert (ended.code, ended.out) == (0, "agreed: True\n")
    assert (tmp_path / "opened").exists() == opened
    if opened:
        assert (tmp_path / "opened").read_text() == "https://login.example/start?for=you"


@each_era
def test_an_address_that_is_not_http_is_never_opened(railway: str, era: str, tmp_path: Path) -> None:
    with person(railway, "enter_oddly", "--era", era, env=browser_noting(tmp_path)) as at:
        assert "cannot be opened from here" in at.wait_for(":cancel cancels):")
        at.type("y")
        at.reply(":cancel cancels):", "m")
        ended = at.end()
    assert (ended.code, ended.out) == (0, "agreed: True\n")
    assert not (tmp_path / "opened").exists()


def browser_noting(folder: Path) -> dict[str, str]:
    """Return an environment whose browser records the address that it opens."""
    note = folder / "browser.sh"
    note.write_text(f'#!/bin/sh\nprintf %s "$1" > {folder}/opened\n')
    note.chmod(0o755)
    return {"BROWSER": f"{note} %s"}


@each_era
def test_the_person_may_stand_in_for_a_model(railway: str, era: str) -> None:
    with person(railway, "recite", "--era", era) as at:
        shown = at.wait_for(":cancel cancels)")
        at.type("Rails,\nrails.\n.")
        assert "system:\n| You are a poet.\nuser:\n| Write a verse about trains.\n" in shown
        ended = at.end()
    assert (ended.code, ended.out) == (0, "Rails,\nrails.\n")


@each_era
def test_transitions_report_the_state_of_the_call(railway: str, era: str) -> None:
    with person(railway, "book", "train=X1", "people=2", "--step", "--era", era) as at:
        first = at.wait_for("Press Enter to continue:")
        at.type("")
        choose_a_seat(at)
        second = at.wait_for("Press Enter to continue:")
        at.type("")
        at.reply("y or n:", "n")
        ended = at.end()
    assert (ended.code, ended.out) == (0, "not booked\n")
    if era == "retry":
        assert re.search(r"Round 1: asks seat \(form\); request state: \d+ bytes; \d+\.\d s so far", first)
        assert re.search(r"Round 2: asks consent \(form\); request state: \d+ bytes; \d+\.\d s so far", second)
    else:
        assert re.search(r"Question 1 \(form\); the request stays open; \d+\.\d s so far", first)
        assert re.search(r"Question 2 \(form\);", second)


@each_era
def test_uncovered_answers_are_asked_for(railway: str, era: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text('[{"message": "^Book", "answer": {"sure": true}}]')
    with person(railway, "book", "train=X1", "people=2", "--answers", str(answers), "--era", era) as at:
        choose_a_seat(at)
        ended = at.end()
    assert ended.code == 0
    assert "y or n" not in ended.told


@pytest.mark.parametrize("server", [command(ours), name_of(ours)], ids=["stdio", "in the same process"])
def test_an_interrupted_call_ends_with_130_and_without_a_traceback(server: str) -> None:
    with person(server, "book", "train=X1", "people=2") as at:
        at.wait_for("type its number:")
        at.interrupt()
        ended = at.end()
    assert ended.code == 130
    assert "Traceback" not in ended.told
