"""Forms on a page: the control for each kind of field, and reading what a browser sends."""

from collections.abc import Mapping
from typing import Any

import pytest

from roundtrip.pages.controls import Control
from roundtrip.pages.forms import (
    OpenQuestions,
    PageForm,
    PostUnreadable,
    QuestionKind,
    form_of_questions,
    parse_body,
    read_form,
)
from tests.kit.html_forms import encode
from tests.kit.page_calls import confirmation, form, link

Shape = Mapping[str, Any]


def answered(questions: OpenQuestions, *pairs: tuple[str, str], button: str = "answer") -> tuple[PageForm, Any]:
    return read_form(questions, parse_body(encode([("token", "t"), ("decision", button), *pairs])))


def read(shape: Shape, *texts: str, required: bool = True, zone: str | None = None) -> Any:
    """Return the content of a form with one field, or the text of its mistake."""
    questions = {"q": form("?", {"f": shape}, required=["f"] if required else [])}
    zones = [("q0-f0-zone", zone)] if zone is not None else []
    page, answers = answered(questions, *(("q0-f0", text) for text in texts), *zones)
    if answers is None:
        (mistake,) = page.mistakes
        assert mistake.label == "F"
        return mistake.text
    assert answers["q"]["action"] == "accept"
    return answers["q"]["content"].get("f", "left out")


def shown(shape: Shape, *, name: str = "f", required: bool = True) -> Any:
    page = form_of_questions({"q": form("?", {name: shape, "other": {}}, required=[name] if required else [])})
    return page.questions[0].fields[0]


TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
YES_NO = {"type": "boolean"}
ONE = {"type": "string", "enum": ["s", "m", ""]}
MENU = {"type": "string", "oneOf": [{"const": f"v{place}", "title": f"Value {place}"} for place in range(9)]}
SEVERAL = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}}
MOMENT = {"type": "string", "format": "date-time"}


CONTROLS: list[tuple[Shape, Control]] = [
    (TEXT, Control.LINE),
    ({**TEXT, "maxLength": 201}, Control.LINES),
    ({**TEXT, "default": "two\nlines"}, Control.LINES),
    ({**TEXT, "format": "date"}, Control.DATE),
    (MOMENT, Control.MOMENT),
    (WHOLE, Control.LINE),
    (YES_NO, Control.RADIOS),
    (ONE, Control.RADIOS),
    (MENU, Control.MENU),
    (SEVERAL, Control.CHECKBOXES),
    ({"type": "object"}, Control.LINES),
]


def test_kind_of_field_decides_the_control() -> None:
    """Shows F1, F2."""
    assert [shown(shape).control for shape, _ in CONTROLS] == [control for _, control in CONTROLS]


REQUIRED: list[tuple[Shape, list[str], Any]] = [
    (TEXT, [" Quarterly report (final) ü/2.pdf "], " Quarterly report (final) ü/2.pdf "),
    (TEXT, ["one\r\ntwo\rthree"], "one\ntwo\nthree"),
    ({**TEXT, "minLength": 3}, ["ab"], "It must be at least 3 characters."),
    ({**TEXT, "minLength": 1, "maxLength": 3}, ["a\r\nb"], "a\nb"),
    ({**TEXT, "minLength": 1, "maxLength": 3}, ["abcd"], "It must be 1 to 3 characters."),
    (TEXT, [""], "Fill this in."),
    (TEXT, ["a\x00b"], "The text contains a character that cannot be shown. Type it again."),
    ({**TEXT, "format": "email"}, [" ada@example.com "], "ada@example.com"),
    ({**TEXT, "format": "email"}, ["ada"], "It must be an e-mail address, such as ada@example.com."),
    ({**TEXT, "format": "uri"}, ["x"], "It must be an address with its scheme, such as https://example.com."),
    ({**TEXT, "format": "date"}, ["2026-02-28"], "2026-02-28"),
    ({**TEXT, "format": "date"}, ["2026-02-31"], "It must be a date, such as 2026-07-28."),
    (WHOLE, [" -7 "], -7),
    (WHOLE, ["1,000"], "It must be a whole number."),
    (WHOLE, ["٣"], "It must be a whole number."),
    (WHOLE, ["9" * 5000], "It must be a whole number."),
    ({**WHOLE, "minimum": 1, "maximum": 9}, ["10"], "It must be 1 to 9."),
    (NUMBER, ["3"], 3),
    (NUMBER, ["-.5e1"], -5.0),
    (NUMBER, ["nan"], "It must be a number, such as 12.5, with a point and without spaces or commas."),
    (NUMBER, ["1e999"], "It must be a smaller number."),
    (YES_NO, ["yes"], True),
    (YES_NO, [], "Choose one."),
    (YES_NO, ["true"], "Choose one of the options."),
    (ONE, ["1"], "m"),
    (ONE, ["2"], ""),
    (ONE, [""], "Choose one."),
    (ONE, ["3"], "Choose one of the options."),
    (SEVERAL, [], []),
    (SEVERAL, ["1", "0", "1"], ["b", "a"]),
    (SEVERAL, ["2"], "Choose one of the options."),
    ({**SEVERAL, "minItems": 1}, [], "Choose at least 1 of them."),
    ({**SEVERAL, "maxItems": 1}, ["0", "1"], "Choose at most 1 of them."),
    ({"type": "object"}, ['{"a": [1]}'], {"a": [1]}),
    ({}, ["NaN"], "It must be JSON, such as 3, true, [1, 2] or {}."),
    ({}, ["[" * 100_000], "It must be JSON, such as 3, true, [1, 2] or {}."),
]


def test_required_field_is_read() -> None:
    """Shows F1, F2."""
    found = [read(shape, *texts) for shape, texts, _ in REQUIRED]
    assert found == [value for *_, value in REQUIRED]
    assert [type(one) for one in found] == [type(value) for *_, value in REQUIRED]


OPTIONAL: list[tuple[Shape, list[str], Any]] = [
    (TEXT, [""], "left out"),
    (TEXT, [], "left out"),
    ({**TEXT, "default": "none"}, [""], ""),
    ({**TEXT, "default": "none", "minLength": 2}, [""], "left out"),
    ({**TEXT, "format": "date", "default": "2026-07-28"}, [""], "left out"),
    (WHOLE, [""], "left out"),
    (WHOLE, ["x"], "It must be a whole number."),
    (YES_NO, [""], "left out"),
    (ONE, [], "left out"),
    (MENU, [""], "left out"),
    (SEVERAL, [], []),
    ({**SEVERAL, "minItems": 1}, [], "left out"),
    ({"type": "object"}, [""], "left out"),
]


def test_optional_field_may_be_left_out() -> None:
    found = [read(shape, *texts, required=False) for shape, texts, _ in OPTIONAL]
    assert found == [value for *_, value in OPTIONAL]


MOMENTS = [
    ("2026-07-28T09:30", "Z", True, "2026-07-28T09:30:00Z"),
    ("2026-07-28T09:30:15.123", "+05:45", True, "2026-07-28T09:30:15.123+05:45"),
    ("2026-07-28T09:30", "", True, "Choose the time zone."),
    ("", "Z", True, "Fill in a date and a time."),
    ("", "", False, "left out"),
    ("2026-02-31T09:30", "Z", True, "It must be a date and time, such as 2026-07-28T09:30:00Z."),
    ("2026-07-28T09:30", "+99:00", True, "It must be a date and time, such as 2026-07-28T09:30:00Z."),
    ("2026-07-28T09:30", "<b>", True, "Fill in a date and a time."),
    ("tomorrow", "Z", True, "Fill in a date and a time."),
]


def test_moment_needs_its_time_zone() -> None:
    found = [read(MOMENT, local, zone=zone, required=required) for local, zone, required, _ in MOMENTS]
    assert found == [value for *_, value in MOMENTS]


def test_moment_keeps_the_zone_of_its_default() -> None:
    view = shown({**MOMENT, "default": "2026-07-28t09:30:00.123456+01:17"})
    assert view.typed == ("2026-07-28T09:30:00.123", "+01:17")
    assert [zone.wire for zone in view.zones if zone.chosen] == ["+01:17"]
    assert shown({**MOMENT, "default": "2026-07-28T09:30:00+00:00"}).zone == "Z"


UNFIT: list[Shape] = [
    {**TEXT, "default": 5},
    {**YES_NO, "default": "yes"},
    {**ONE, "default": "xl"},
    {**SEVERAL, "default": ["a", "c"]},
    {**MOMENT, "default": "tomorrow"},
    {**TEXT, "format": "date", "default": "tomorrow"},
]


def test_default_that_does_not_fit_is_not_shown() -> None:
    """Shows F3."""
    assert [shape for shape in UNFIT if shown(shape).typed != ()] == []


RULES: list[tuple[Shape, str, str]] = [
    ({**TEXT, "pattern": "^a+$"}, "It must match the pattern ^a+$.", "b"),
    ({**NUMBER, "exclusiveMinimum": 3}, "It must be more than 3.", "3"),
    ({**NUMBER, "exclusiveMaximum": 3}, "It must be less than 3.", "3"),
    ({**WHOLE, "multipleOf": 5}, "It must be a multiple of 5.", "6"),
    ({**WHOLE, "enum": [1, 2]}, "It is not a valid answer to this question.", "3"),
]


def test_rules_beyond_the_protocol_are_checked() -> None:
    assert [read(shape, text) for shape, _, text in RULES] == [message for _, message, _ in RULES]


def test_number_beyond_all_floats_is_left_to_the_server() -> None:
    assert read({**WHOLE, "multipleOf": 0.5}, "9" * 400) == int("9" * 400)


def test_broken_schema_is_left_to_the_server() -> None:
    rules: list[Shape] = [{"pattern": "("}, {"$ref": "https://example.com/x"}, {"$ref": "#/properties/f"}]
    assert [rule for rule in rules if read({**TEXT, **rule}, "x") != "x"] == []


LABELS: list[tuple[str, Shape, str]] = [
    ("file_name", TEXT, "File name"),
    ("file_name", {**TEXT, "title": "The file"}, "The file"),
    ("___", TEXT, "___"),
    ("", TEXT, ""),
    ("e\u202etxt", TEXT, "E\\u202etxt"),
]


def test_label_is_the_title_or_the_name_in_words() -> None:
    assert [shown(shape, name=name).label for name, shape, _ in LABELS] == [label for *_, label in LABELS]
    page = form_of_questions({"q": form("How many?", {"value": {**WHOLE, "title": "Value"}})})
    assert page.questions[0].fields[0].label == "Your answer"


HEADINGS = [
    ("Sure?", "Sure?", ""),
    ("Sure?\n\nIt costs 3 euros.\r\nAlways.", "Sure?", "It costs 3 euros.\nAlways."),
    ("", "A question for you", ""),
    ("x" * 141 + "\ny", "A question for you", "x" * 141 + "\ny"),
    ("Pay\u202e", "Pay\\u202e", ""),
]


def test_first_line_is_the_heading() -> None:
    views = [form_of_questions({"q": confirmation(message)}).questions[0] for message, *_ in HEADINGS]
    assert [(view.heading, view.text) for view in views] == [(heading, text) for _, heading, text in HEADINGS]


HOSTS = [
    ("https://pay.example/x", "pay.example"),
    ("HTTP://PAY.example:8080/x", "pay.example"),
    ("https://bank.example@evil.example/", "evil.example"),
    ("https://b\u0430nk.example/", "xn--bnk-6cd.example"),
    ("https://[::1]:80/", "::1"),
    ("javascript:alert(1)", ""),
    ("data:text/html,x", ""),
    ("//evil.example", ""),
    ("https:///x", ""),
    ("https://a.example\\@evil.example", ""),
    ("https://a%2eexample/", ""),
    ("https://a.example/\n", ""),
    ("https://[", ""),
    ("myapp://open", ""),
]


def test_link_names_its_host_or_is_no_link() -> None:
    views = [form_of_questions({"q": link("Pay.", url)}).questions[0] for url, _ in HOSTS]
    assert [(view.url, view.host) for view in views] == [(url if host else None, host) for url, host in HOSTS]


QUESTIONS: OpenQuestions = {
    "a": form("Name?", {"name": TEXT}, required=["name"]),
    "b": confirmation("Sure?"),
    "c": link("Pay.", "https://pay.example/"),
}


def test_buttons_answer_a_single_question() -> None:
    assert answered({"b": QUESTIONS["b"]})[1] == {"b": {"action": "accept", "content": {}}}
    assert answered({"c": QUESTIONS["c"]})[1] == {"c": {"action": "accept"}}
    assert answered({"b": QUESTIONS["b"]}, button="decline")[1] == {"b": {"action": "decline"}}
    assert answered({"a": QUESTIONS["a"]}, ("q0-f0", ""), button="decline")[1] == {"a": {"action": "decline"}}


def test_each_of_several_questions_has_its_own_no() -> None:
    page, answers = answered(QUESTIONS, ("q0-choice", "no"), ("q0-f0", ""), ("q1-choice", "yes"), ("q2-choice", "no"))
    assert page.mistakes == []
    assert answers == {
        "a": {"action": "decline"},
        "b": {"action": "accept", "content": {}},
        "c": {"action": "decline"},
    }
    assert answered(QUESTIONS, button="decline")[1] == {key: {"action": "decline"} for key in "abc"}


def test_mistakes_are_listed_in_order_and_texts_stay() -> None:
    page, answers = answered(QUESTIONS, ("q0-f0", ""), ("q2-choice", "maybe"))
    assert answers is None
    assert [(mistake.target, mistake.label, mistake.text) for mistake in page.mistakes] == [
        ("q0-f0", "Name", "Fill this in."),
        ("q1-choice-yes", "Sure?", "Choose one."),
        ("q2-choice-yes", "Pay.", "Choose one."),
    ]
    page, _ = answered(QUESTIONS, ("q0-f0", " Ada\r\nL. "))
    view = page.questions[0].fields[0]
    assert view.text == " Ada\nL. "
    assert view.control is Control.LINES


def is_readable(*pairs: tuple[str, str], button: str = "answer") -> bool:
    try:
        answered({"a": QUESTIONS["a"]}, *pairs, button=button)
    except PostUnreadable:
        return False
    return True


def test_foreign_or_doubled_fields_are_unreadable() -> None:
    assert is_readable(("q0-f0", "a"))
    foreign = ["q0-f0", "decision", "token", "q0-f1", "q0-choice", "name", "__proto__"]
    assert [name for name in foreign if is_readable(("q0-f0", "a"), (name, "yes"))] == []
    assert [button for button in ("", "accept", "ANSWER") if is_readable(("q0-f0", "x"), button=button)] == []


BODIES = [b"\xff\xfe", "ä=ö".encode(), b"a=%FF", b"a=%ED%A0%80", b"a", b"a=b&&c=d", b"&" * 10, b"a=b&" * 10_001]


def is_parsed(body: bytes) -> bool:
    try:
        parse_body(body)
    except PostUnreadable:
        return False
    return True


def test_body_that_no_browser_sends_is_unreadable() -> None:
    assert [body[:20] for body in BODIES if is_parsed(body)] == []


def test_body_is_read_as_utf8() -> None:
    assert parse_body(b"a=%C3%A4+%F0%9F%98%80&b=&a=%00") == {"a": ["ä 😀", "\0"], "b": [""]}


def test_question_for_no_user_has_no_page() -> None:
    requests: list[dict[str, Any]] = [{"method": "sampling/createMessage", "params": {}}, {"method": "roots/list"}, {}]
    for request in requests:
        with pytest.raises(ValueError, match="question 'q': a page can show only questions that a user answers"):
            form_of_questions({"q": request})


def test_form_without_fields_is_a_confirmation() -> None:
    shapes: list[dict[str, Any]] = [{}, {"requestedSchema": None}, {"requestedSchema": {"properties": []}}]
    pages = [form_of_questions({"q": {"method": "elicitation/create", "params": shape}}) for shape in shapes]
    assert {page.questions[0].kind for page in pages} == {QuestionKind.CONFIRMATION}


OPTIONS: list[tuple[Shape, list[str]]] = [
    (ONE, ["s", "m", "", "No answer"]),
    ({**ONE, "default": "m"}, ["s", "m", ""]),
    ({**ONE, "default": "other"}, ["s", "m", "", "No answer"]),
    (YES_NO, ["Yes", "No", "No answer"]),
    ({**YES_NO, "default": False}, ["Yes", "No"]),
    ({**MENU, "default": "v3"}, [f"Value {place}" for place in range(9)]),
]


def test_no_answer_is_offered_only_where_it_means_none() -> None:
    """Without an answer, the tool gets the default."""
    offered = [[option.label for option in shown(shape, required=False).options] for shape, _ in OPTIONS]
    assert offered == [labels for _, labels in OPTIONS]
