"""The page of a call allows itself one script and one style, and a transcript cannot leave its place in it."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any
from xml.etree.ElementTree import fromstring

from roundtrip.machine.table import CALL_MACHINE, State
from roundtrip.trace.page.data import Data, data_of
from roundtrip.trace.page.document import UI_PAGES, call_page, html, json_for_html, page_of
from roundtrip.trace.page.forms import page_fields_of
from tests.kit.tables import check_each
from tests.unit.trace.tales import HOSTILE, Tale, question


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy_of(page: str) -> dict[str, str]:
    stated = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert stated is not None
    return {name: rest for name, _, rest in (part.partition(" ") for part in stated[1].split("; "))}


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def ordinary() -> Tale:
    return Tale().began(1).asked(question("a")).began(2, "birch").ended()


PAGES: dict[str, tuple[str, bool]] = {
    "of a call": (html(ordinary().call()), False),
    "of a live call": (call_page(ordinary().call(), live={"url": "call.json", "version": 1, "every": 1000}).text, True),
    **{place: (page_of(page, "Calls", {"server": HOSTILE}).text, True) for place, page in UI_PAGES.items()},
}
"""Pages, each with whether it asks its server."""


def test_policy_allows_only_the_own_script_style_and_server() -> None:
    def check(place: str) -> None:
        page, asks = PAGES[place]
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
        assert policy_of(page) == {
            "default-src": "'none'",
            "script-src": hash_of(script),
            "style-src": hash_of(style),
            **({"connect-src": "'self'"} if asks else {}),
            "base-uri": "'none'",
            "form-action": "'none'",
        }
        markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
        assert set(re.findall(r"""(?:https?:)?//[^\s"']+""", markup)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"""\s(on\w+|style|src)=""", markup)
        if place in UI_PAGES:
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\.style\b|document\.write", script)
            assert embedded(page) == {"server": HOSTILE}

    check_each(PAGES, check)


def test_picture_of_the_machine_shows_its_table() -> None:
    tree = fromstring(files("roundtrip.trace.page").joinpath("web/machine.svg").read_text(encoding="utf-8"))

    def groups(kind: str) -> list[tuple[dict[str, str], str]]:
        """Return the data of each group of a class, and its visible text."""
        found = [group for group in tree if kind in group.get("class", "").split()]
        return [
            ({key.removeprefix("data-"): value for key, value in one.items()}, one.findtext("{*}text") or "")
            for one in found
        ]

    table = sorted((arrow.source, arrow.event, arrow.target) for arrow in CALL_MACHINE.arrows)
    labels, states = groups("rt-label"), groups("rt-state")
    assert sorted((data["source"], data["event"], data["target"]) for data, _ in groups("rt-arrow")) == table
    shown = [(source, text, data["target"]) for data, text in labels for source in data["sources"].split()]
    assert sorted(shown) == table
    assert [text for _, text in labels] == [data["event"] for data, _ in labels]
    assert sorted(text for _, text in states) == sorted(data["state"] for data, _ in states) == sorted(State)
    assert {data["state"] for data, _ in groups("rt-final")} == CALL_MACHINE.final
    boxes = {one.get("data-state"): next(one.iterfind("{*}rect")) for one in tree.iterfind("{*}g[@data-state]")}
    for arrow in tree.iterfind("{*}g[@data-source]"):
        numbers = [float(number) for number in re.findall(r"[\d.]+", next(arrow.iterfind("{*}path")).get("d", ""))]
        for end, (x, y) in (("source", numbers[:2]), ("target", numbers[-2:])):
            left, top, width, height = (
                float(boxes[arrow.get(f"data-{end}")].get(side, "")) for side in ("x", "y", "width", "height")
            )
            assert left <= x <= left + width, arrow.attrib
            assert top <= y <= top + height, arrow.attrib


def test_no_text_ends_the_data_or_becomes_markup() -> None:
    tale = Tale(HOSTILE, tool=HOSTILE).began(1, HOSTILE, arguments={"value": {HOSTILE: HOSTILE}})
    tale.asked(question(HOSTILE, message={"value": HOSTILE}, form={"value": {"properties": {HOSTILE: HOSTILE}}}))
    tale.rejected("expired", HOSTILE)
    page, plain = html(tale.call()), html(Tale("c").began(1).call())
    assert embedded(page)["tool"] == HOSTILE
    # As many tags as in any other page.
    assert len(re.findall("<", page)) == len(re.findall("<", plain))
    assert not re.search("[\u2028\u2029\u202e\x00\x1b]", page)
    text = json_for_html({"a": f"<!--</script>&{HOSTILE}é"})
    assert text.isascii()
    assert not set("<>&") & set(text)


def test_numbers_and_times_of_any_size_are_shown() -> None:
    big = 2**70 + 1
    tale = Tale().began(1, arguments={"value": {"big": big, "lone": "\ud800"}}).asked(question("a"))
    data = embedded(html(tale.began(2, at=1e308).ended(at=1e308, ms=1e308).call()))
    assert str(big) in data["steps"][0]["lines"][0]["text"]
    assert json.loads(data["steps"][0]["arguments"]["text"])["lone"] == "\ud800"
    assert ["Waiting", "?"] in data["facts"]
    assert data["share"] == 1


def step(tale: Tale, place: int) -> Data:
    return data_of(tale.call())["steps"][place]


def test_page_has_a_step_per_round_and_an_end() -> None:
    data = data_of(ordinary().call())
    assert [(each["name"], each["state"]) for each in data["steps"]] == [
        ("Round 1", "awaiting_input"),
        ("End: completed", "completed"),
    ]
    assert data["rows"] == [{"key": "a", "marks": "0."}]
    assert data["steps"][0]["moves"] == [["received", "begin"], ["resolving", "ask"]]
    assert data["steps"][1]["moves"][0] == ["awaiting_input", "resume"]


def test_waiting_call_ends_with_its_pending_round_or_a_rejection() -> None:
    tale = Tale().began(1).asked(question("a"), until=1_790_000_600.0)
    data = data_of(tale.call())
    assert [each["name"] for each in data["steps"]] == ["Round 1"]
    assert data["rows"] == [{"key": "a", "marks": "3"}]
    (waits,) = [text for name, text in data["facts"] if name == "Waits for"]
    assert waits.startswith("a (until ")
    rejected = step(tale.rejected("expired"), 1)
    assert rejected["name"] == "Now: awaiting_input"
    assert [rejection["reason"] for rejection in rejected["rejections"]] == ["expired"]


def test_question_shows_its_reason_and_its_answer() -> None:
    form = {"value": {"properties": {"size": {"type": "string", "enum": ["S", "M"]}}}}
    tale = Tale().began(1).asked(question("a", form=form, message={"value": "Which size?"}))
    answer = {"key": "a", "action": "accept", "how": "taken", "data": {"value": {"size": "M"}}}
    shown = step(tale.began(2).ended(answers=[answer]), 0)["questions"][0]
    assert shown["message"] == {"text": "Which size?"}
    assert shown["why"].startswith("Question 'a' was asked in round 1")
    assert shown["answer"]["action"] == "accept"
    assert [(option["label"], option["chosen"]) for option in shown["fields"][0]["options"]] == [
        ("S", False),
        ("M", True),
    ]


def test_unrecorded_value_is_shown_by_digest() -> None:
    kept = {"digest": "abcdefghijkl", "bytes": 24}
    shown = step(Tale().began(1).asked(question("a", message=kept, form=kept)), 0)["questions"][0]
    assert shown["message"] == {"hidden": "not recorded: 24 B, digest abcdefghijkl"}
    assert shown["fields"] is None


def test_the_token_shows_what_changed_since_the_round_before() -> None:
    tale = Tale().began(1).asked(question("a"), token={"bytes": 300, "added": ["asked:a"]})
    tale.began(2).asked(question("b"), token={"bytes": 280, "added": ["answer:a"], "dropped": ["asked:a"]})
    token = step(tale, 1)["token"]
    assert token["text"] == "280 B, −20 B since the round before"  # noqa: RUF001 - a minus sign
    assert (token["added"], token["dropped"], token["changed"]) == (("answer:a",), ("asked:a",), ())


def test_any_stand_in_for_a_form_is_shown() -> None:
    def check(schema: Any) -> None:
        assert [field["name"] for field in page_fields_of(schema, {"a": [1]})] == ["a"]
        assert page_fields_of(schema, "no mapping") is not None

    check_each(
        [
            None,
            [],
            "form",
            {"properties": []},
            {"properties": {"a": None}},
            {"properties": {"a": {"enum": 3, "oneOf": [1], "type": ["x"]}}, "required": "a"},
            {"properties": {"a": {"type": "array", "items": {"anyOf": [{"title": "no const"}]}, "default": {"x": []}}}},
        ],
        check,
    )


def test_unanswered_field_shows_its_default() -> None:
    schema = {
        "properties": {
            "note": {"type": "string", "default": "none", "title": "A note"},
            "many": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}, {"const": "y"}]}},
            "sure": {"type": "boolean"},
        },
        "required": ["sure"],
    }
    note, many, sure = page_fields_of(schema, {"many": ["y"], "sure": False})
    assert (note["label"], note["value"], note["given"]) == ("A note", "none", False)
    assert [(option["label"], option["chosen"]) for option in many["options"]] == [("X", False), ("y", True)]
    assert many["many"]
    assert [(option["label"], option["chosen"]) for option in sure["options"]] == [("yes", False), ("no", True)]
    assert sure["required"]
