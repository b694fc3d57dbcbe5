"""Scripts get answers from a file, arguments by the schema, and an exit code for every end."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("the processes are forked", allow_module_level=True)

from tests.interaction.calls.servers import dying, waiting
from tests.interaction.calls.sessions import command, script, served
from tests.kit.hosts import HttpProcess
from tests.kit.tables import check_each

each_era = pytest.mark.parametrize("era", ["retry", "live"])

SEAT = {"seat": "w", "meals": ["fish"], "mail": "ada@example.com"}
BOOKED = "X1 for 2: w fish 1 ada@example.com None\n"


ANSWERS: dict[str, Any] = {
    "by key": {"seat": SEAT, "consent": {"sure": True}},
    "in order": [{"answer": SEAT}, {"answer": {"sure": True}}],
    "by message": [{"message": "^Book", "answer": {"sure": True}}, {"message": "seat", "answer": SEAT}],
    "mixed": [{"name": "consent", "message": "^Book", "answer": {"sure": True}}, {"answer": SEAT}],
}


@pytest.mark.parametrize(
    ("era", "how"), [("retry", "by key"), ("live", "in order"), ("live", "by message"), ("retry", "mixed")]
)
def test_a_file_answers(railway: str, era: str, how: str) -> None:
    answers = ANSWERS[how]
    ended = script(railway, "book", "train=X1", "people=2", "--answers", "-", "--era", era, stdin=json.dumps(answers))
    assert (ended.code, ended.out, ended.told) == (0, BOOKED, "")


CONFIRMED: list[tuple[dict[str, Any], int, str]] = [
    ({"price": 7, "confirm:book": "decline", "confirm:scrap": "accept"}, 0, "scrapped for 7\n"),
    (
        {"confirm:book": "accept", "confirm:scrap": "decline", "price": 7},
        3,
        "Error executing tool scrap: The user declined the question 'confirm:scrap'\n",
    ),
    ({"confirm:book": "accept"}, 2, ""),
]


@each_era
def test_confirmation_is_answered_only_by_the_entry_of_its_tool(railway: str, era: str) -> None:
    def check(answers: dict[str, Any], code: int, out: str) -> None:
        ended = script(railway, "scrap", "--answers", "-", "--era", era, stdin=json.dumps(answers))
        assert (ended.code, ended.out) == (code, out)

    check_each(CONFIRMED, check)


@each_era
def test_unanswered_question_is_named_and_ends_the_call(railway: str, era: str) -> None:
    answers = json.dumps({"seat": SEAT})
    ended = script(railway, "book", "train=X1", "people=2", "--answers", "-", "--era", era, stdin=answers)
    assert (ended.code, ended.out) == (2, "")
    named = "'consent'" if era == "retry" else "'Book w with 1 pieces?'"
    assert ended.told.startswith(f"roundtrip call: there is no answer to the question {named}")
    assert ("used in order" in ended.told) == (era == "live")


@pytest.mark.parametrize(
    ("tool", "answers", "code", "out"),
    [
        ("recite", '{"verse": {"text": "Rails."}}', 0, "Rails.\n"),
        ("photograph", "{}", 0, "a train\n[image, image/png, 3 bytes]\n"),
        ("derail", "{}", 1, "Error executing tool derail: the train is off its rails\n"),
    ],
)
def test_result_of_any_kind_is_printed(railway: str, tool: str, answers: str, code: int, out: str) -> None:
    ended = script(railway, tool, "--answers", "-", stdin=answers)
    assert (ended.code, ended.out) == (code, out)


UNFIT: list[tuple[Any, str]] = [
    ({**SEAT, "bags": 9}, "field 'bags': it must be 0 to 3"),
    ({**SEAT, "row": 3}, "the form has no field 'row'"),
    (7, "must be an object with the form's fields ('seat', 'meals', "),
]


def test_an_answer_that_does_not_fit_is_not_sent(railway: str) -> None:
    def check(answer: Any, wrong: str) -> None:
        answers = json.dumps([{"answer": answer}])
        ended = script(railway, "book", "train=X1", "people=2", "--answers", "-", stdin=answers)
        assert (ended.code, ended.out) == (2, "")
        assert wrong in ended.told

    check_each(UNFIT, check)


def test_page_accepted_by_a_file_is_shown_but_not_opened(railway: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text('{"login": "accept"}')
    ended = script(railway, "enter", "--answers", str(answers), env={"BROWSER": "/bin/false %s"})
    assert (ended.code, ended.out) == (0, "agreed: True\n")
    assert "Address: https://login.example/start?for=you\nHost:    login.example\n" in ended.told


@each_era
def test_roots_are_offered_only_when_they_are_given(railway: str, era: str, tmp_path: Path) -> None:
    ended = script(railway, "look", "--root", str(tmp_path), "--era", era)
    assert (ended.code, ended.out) == (0, f"{tmp_path.name} {tmp_path.as_uri()}\n")
    ended = script(railway, "look", "--era", era)
    assert ended.code == 4
    assert "roots" in ended.told


@each_era
def test_progress_and_log_messages_appear_while_waiting(railway: str, era: str) -> None:
    ended = script(railway, "ride", "--era", era)
    assert (ended.code, ended.out) == (0, "arrived\n")
    assert "... 1 of 2: half way\n" in ended.told
    assert "[info]: at the border\n" in ended.told
    assert "border" not in script(railway, "ride", "--era", era, "--log-level", "error").told


def test_arguments_are_read_by_the_schema(railway: str, tmp_path: Path) -> None:
    stops = tmp_path / "stops.json"
    stops.write_text('["Bath", "Wells"]')
    ended = script(railway, "timetable", 'options={"a": 1}', f"stops@={stops}", "fast:=true", "--json")
    assert ended.code == 0
    result = json.loads(ended.out)
    assert result["structuredContent"] == {"options": {"a": 1}, "stops": ["Bath", "Wells"], "fast": True}


def test_tools_are_listed_with_their_parameters(railway: str) -> None:
    ended = script(railway)
    assert ended.code == 0
    assert script(railway, "--list") == ended
    assert "book\n  Book a seat.\n    train (string)\n    people (integer)\n" in ended.out
    assert "    fast (boolean, optional)\n" in ended.out
    listed = json.loads(script(railway, "--json").out)
    assert {"name", "inputSchema"} <= listed[0].keys()


WRONG_USAGE: list[tuple[list[str], str]] = [
    (["bok"], "the server has no tool 'bok'; did you mean 'book'?"),
    (["book", "train=X1"], "the tool 'book' needs 'people'; it takes train (string), people (integer)"),
    (["book", "train=X1", "people=2", "dog=1"], "the tool 'book' has no parameter 'dog'"),
    (
        ["book", "train=X1", "people=two"],
        "the argument 'people' must be an integer, got 'two'\n",
    ),
    (["book", "train=X1", "train=X2", "people=2"], "the argument 'train' must be given only once"),
    (["book", "X1"], "'X1' is not an argument; write key=value, key:=JSON or key@=FILE"),
    (["book", "train@=/no/such"], "cannot read '/no/such': No such file or directory"),
    (["book", "--list"], "--list does not call a tool"),
    (["order", "--task", "x"], "--task"),
    (["--list", "--task", "x"], "--task"),
    (["--task", "x", "--no-tasks"], "--task"),
    (["--cancel"], "--task"),
    (["book", "--step"], "--step needs a terminal"),
    (["book", "--answers", "/no/such"], "cannot read '/no/such': No such file or directory; an answer file"),
    (["book", "--header", "secret-without-a-name"], "header 1 must be written 'Name: value'"),
    (["book", "--header", "Authorization: Bearer ${NO_SUCH}"], "variable NO_SUCH, which is not set"),
]


def test_wrong_usage_exits_with_2_and_explains(railway: str) -> None:
    def check(arguments: list[str], told: str) -> None:
        ended = script(railway, *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.told.startswith("roundtrip call: ")
        assert told in ended.told
        assert "secret" not in ended.told

    check_each(WRONG_USAGE, check)


def test_a_file_that_holds_no_answers_is_wrong_usage(railway: str) -> None:
    for written in ("{", "3", '[{"name": "a"}]', '[{"answer": 1, "message": "("}]', '[{"answer": 1, "name": 2}]'):
        ended = script(railway, "enter", "--answers", "-", stdin=written)
        assert ended.code == 2
        assert "standard input" in ended.told


def test_unreachable_server_is_exit_code_5() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert script(f"http://127.0.0.1:{port}/mcp").code == 5
    ended = script(f"{sys.executable} -c 'import sys; sys.stderr.write(\"\\x1b[31mno luck\")'")
    assert ended.code == 5
    assert r"server: \x1b[31mno luck" in ended.told
    ended = script("/no/such/program")
    assert ended.code == 5
    assert "cannot find the program '/no/such/program'" in ended.told
    assert 'in quotes: "python my_server.py"' in ended.told


@each_era
@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_lost_answer_leaves_open_what_was_done(kind: str, era: str) -> None:
    with HttpProcess() as process:
        process.start(dying)
        ended = script(process.url if kind == "http" else command(dying), "pay", "--era", era)
    assert ended.code == 5
    assert "the connection was lost: " in ended.told
    assert "; the call may have run, so check its effects" in ended.told


@pytest.mark.parametrize("era", ["auto", "live", "retry"])
def test_a_server_that_never_answers_is_given_up(era: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        ended = script(url, "--timeout", "0.2", "--era", era)
    assert ended.code == 5
    assert "did not answer within 0.2 seconds" in ended.told


@pytest.mark.parametrize("era", ["auto", "live", "retry"])
def test_a_server_that_speaks_something_else_is_exit_code_4(railway: str, era: str) -> None:
    ended = script(railway.replace("/mcp", "/elsewhere"), "--era", era)
    assert ended.code == 4
    assert "(HTTP status 404; is there an MCP server at this path? The default path is /mcp" in ended.told


@pytest.mark.parametrize("era", ["retry", "live"])
def test_call_that_waits_has_not_completed(era: str) -> None:
    with served(waiting) as url:
        ended = script(url, "pay", "--answers", "-", "--era", era, stdin='{"page": "accept"}')
    assert (ended.code, "continue_call with handle=" in ended.out) == (6, True)
