"""Reports of explored paths: columns, folded states, and edges that no path took."""

from collections.abc import Sequence

import pytest

from roundtrip.machine.table import State
from roundtrip.testing import Era, Explored, Path, PathAction, PathOutcome

S = State


def path(
    *choices: tuple[str, PathAction],
    outcome: PathOutcome = PathOutcome.COMPLETED,
    text: str = "",
    states: Sequence[State] | None = None,
) -> Path:
    return Path(choices, outcome, text, None if states is None else tuple(states), ())


def explored(*paths: Path, depth: int = 3, left_out: int = 0, strayed: int = 0) -> Explored:
    return Explored("book", Era.RETRY, depth, 500, paths, left_out, strayed, None)


def states_told(*states: State) -> str:
    return explored(path(states=states)).table().splitlines()[-1].split("s1  ")[1]


REPEATED: list[tuple[list[State], str]] = [
    ([S.RECEIVED], "received"),
    ([S.RECEIVED, S.RESOLVING, S.FAILED], "received > resolving > failed"),
    ([S.RECEIVED, S.RECEIVED], "(received) x2"),
    (
        [S.RECEIVED, *(S.RESOLVING, S.AWAITING_INPUT, S.RESUMED) * 3, S.RESOLVING, S.DECLINED],
        "received > (resolving > awaiting_input > resumed) x3 > resolving > declined",
    ),
    (
        [*(S.RESOLVING, S.RESUMED) * 2, *(S.EXECUTING, S.RESUMED) * 2],
        "(resolving > resumed) x2 > (executing > resumed) x2",
    ),
]


def test_states_that_repeat_are_written_once() -> None:
    assert [(states, states_told(*states)) for states, _ in REPEATED] == REPEATED


def test_the_same_states_have_one_name() -> None:
    short, long = [S.RECEIVED, S.FAILED], [S.RECEIVED, S.RESOLVING, S.FAILED]
    table = explored(path(states=short), path(states=long), path(states=short), path()).table()
    assert table == (
        "#  questions  outcome    states  text\n"
        "1             completed  s1\n"
        "2             completed  s2\n"
        "3             completed  s1\n"
        "4             completed\n"
        "\n"
        "states\n"
        "  s1  received > failed\n"
        "  s2  received > resolving > failed"
    )


def test_table_fits_a_terminal_and_distinguishes_paths() -> None:
    long = "a_question_of_a_very_long_name_" * 2
    many = [path(*((long, action),) * 3, text="word " * 40) for action in PathAction]
    lines = explored(*many).table().splitlines()
    assert max(map(len, lines)) <= 120
    assert len({line[3:80] for line in lines[1:]}) == len(PathAction)
    assert lines[1].endswith("…")


def test_paths_that_got_nowhere_are_no_success() -> None:
    with pytest.raises(AssertionError, match="every path of 'book' failed before its first question"):
        explored(path(outcome=PathOutcome.FAILED)).assert_no_crash()
