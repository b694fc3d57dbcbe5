"""Call states as JSON for the app's view."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import roundtrip.channels.apps
import roundtrip.pages
from roundtrip.channels.apps.payloads import payload_of
from roundtrip.pages.calls import AskingPage, AwaitingPage, ClosedPage, EndedPage, PageState, ShownDecision, WorkingPage
from roundtrip.pages.forms import read_form
from tests.kit.page_calls import confirmation, form, link

VIEW = Path(roundtrip.channels.apps.__path__[0]) / "view.html"
BIDI = "a\u202eb"
QUESTIONS = {
    "seat": form(
        f"Where {BIDI}?\nYour\nseat.",
        {
            "row": {
                "type": "string",
                "title": BIDI,
                "description": "x\ny",
                "enum": ["Front", BIDI],
                "default": "Front",
            },
            "when": {"type": "string", "format": "date-time", "default": "2026-07-28T09:30:00+05:17"},
            "mail": {"type": "string", "format": "email"},
            "many": {"type": "integer", "minimum": 1},
        },
        required=["row"],
    ),
    "charge": confirmation("Charge?"),
    "login": link("Log in.", "https://cinema.example/login"),
}


def asked(**options: Any) -> dict[str, Any]:
    return payload_of(AskingPage("the keys of the round", QUESTIONS), "round-1", **options)


def test_questions_have_all_that_a_page_shows() -> None:
    payload = asked(notice="Again.")
    assert {key: payload[key] for key in ("kind", "round", "notice", "mistakes")} == {
        "kind": "asking",
        "round": "round-1",
        "notice": "Again.",
        "mistakes": [],
    }
    seat, charge, login = payload["questions"]
    assert [question["kind"] for question in payload["questions"]] == ["form", "confirmation", "link"]
    assert (seat["heading"], seat["text"]) == ("Where a\\u202eb?", "Your\nseat.")
    assert charge["choice_name"] == "q1-choice"
    assert (login["url"], login["host"]) == ("https://cinema.example/login", "cinema.example")
    row, when, mail, many = seat["fields"]
    assert row == {
        "id": "q0-f0",
        "names": ["q0-f0"],
        "control": "radios",
        "label": "a\\u202eb",
        "about": "x\ny",
        "hint": "",
        "typed": ["0"],
        "error": None,
        "required": True,
        "input_mode": None,
        "is_email": False,
        "is_yes_no": False,
        "options": [
            {"id": "q0-f0-0", "wire": "0", "label": "Front", "chosen": True},
            {"id": "q0-f0-1", "wire": "1", "label": "a\\u202eb", "chosen": False},
        ],
        "zones": [],
    }
    assert (when["names"], when["typed"]) == (["q0-f1", "q0-f1-zone"], ["2026-07-28T09:30:00", "+05:17"])
    assert [zone["label"] for zone in when["zones"] if zone["chosen"]] == ["UTC+05:17"]
    assert (mail["is_email"], mail["input_mode"], many["input_mode"]) == (True, "email", "numeric")


def test_mistakes_keep_what_was_typed() -> None:
    filled, answers = read_form(QUESTIONS, {"decision": ["answer"], "q0-f3": ["some"], "q2-choice": ["no"]})
    assert answers is None
    payload = asked(form=filled)
    assert payload["mistakes"] == [
        {"target": "q0-f0-0", "label": "a\\u202eb", "text": "Choose one."},
        {"target": "q0-f3", "label": "Many", "text": "It must be a whole number."},
        {"target": "q1-choice-yes", "label": "Charge?", "text": "Choose one."},
    ]
    seat, charge, login = payload["questions"]
    assert (seat["fields"][3]["typed"], seat["fields"][3]["error"]) == (["some"], "It must be a whole number.")
    assert (charge["error"], login["choice"]) == ("Choose one.", "no")


STATES: list[tuple[PageState, dict[str, Any]]] = [
    (WorkingPage(), {"kind": "working", "continue_in_chat": False, "notice": None}),
    (AwaitingPage((BIDI,)), {"kind": "awaiting", "groups": ["a\\u202eb"], "notice": None}),
    (EndedPage(), {"kind": "ended", "is_error": False, "text": None, "decisions": [], "notice": None}),
    (
        EndedPage(
            f"{BIDI}\nx", is_error=True, decisions=(ShownDecision(f"{BIDI}\nx", BIDI, "rejected", f"{BIDI}\nx"),)
        ),
        {
            "kind": "ended",
            "is_error": True,
            "text": "a\\u202eb\nx",
            "decisions": [
                {"message": "a\\u202eb", "by": "a\\u202eb", "outcome": "rejected", "reason": "a\\u202eb\nx"},
            ],
            "notice": None,
        },
    ),
]


@pytest.mark.parametrize(("state", "payload"), STATES)
def test_other_states_have_printable_texts(state: PageState, payload: dict[str, Any]) -> None:
    assert payload_of(state, None) == payload
    assert payload_of(state, None, notice="Again.") == {**payload, "notice": "Again."}


def test_closed_call_tells_nothing() -> None:
    assert payload_of(ClosedPage(), "round-1", notice="Again.") == {"kind": "closed"}


def test_working_call_can_need_the_chat() -> None:
    assert payload_of(WorkingPage(needs_client=True), None)["continue_in_chat"] is True


def test_payload_is_json_and_tells_no_keys() -> None:
    text = json.dumps(asked())
    assert "the keys of the round" not in text
    assert not re.search(r'"(seat|charge|login|row)"', text)


def test_policy_of_the_view_allows_its_own_script_and_style() -> None:
    text = VIEW.read_text(encoding="utf-8")
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in text, f"write {digest} after {directive}"
    assert text.isascii()


def test_view_has_the_words_of_the_pages() -> None:
    text, folder = VIEW.read_text(encoding="utf-8"), Path(roundtrip.pages.__path__[0]) / "templates"
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.j2"))
    words = ["Ended without a result", "Done", "Still working", "Waiting for an approval", "Not decided in time"]
    words += ["There is nothing to answer here", "Questions for you", "Send answers", "Do not answer any of these"]
    words += ["I do not want to answer this", "There is a problem", "You cannot approve your own request."]
    assert [word for word in words if word not in text or word not in source] == []
