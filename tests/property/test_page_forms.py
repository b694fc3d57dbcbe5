"""Random forms on a page: valid content, filled in as in a browser, arrives as the same content."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roundtrip.pages.controls import Control, FieldView
from roundtrip.pages.forms import form_of_questions, parse_body, read_form
from roundtrip.pages.rendering import PageRenderer
from roundtrip.pages.settings import PageLook
from roundtrip.questions.fields import fields_of
from roundtrip.testing.strategies import answers
from tests.kit.html_forms import HtmlForm, encode, read_page
from tests.kit.tiers import examples
from tests.property.form_schemas import SCHEMAS, accepts, answerable

RENDERER = PageRenderer(PageLook("Shop"))
MOMENT = re.compile(r"(.{19}(?:\.\d{1,3})?)\d*(.+)")
YES_NO = {True: "yes", False: "no"}
RUN = settings(max_examples=examples(80), deadline=None, database=None)


def asked(schema: Mapping[str, Any]) -> dict[str, Any]:
    params = {"mode": "form", "message": "Which?", "requestedSchema": schema}
    return {"q": {"method": "elicitation/create", "params": params}}


def opened(schema: Mapping[str, Any]) -> HtmlForm:
    return read_page(
        RENDERER.render("question.html.j2", form=form_of_questions(asked(schema)), token="token", notice=None)
    )


def read(schema: Mapping[str, Any], body: bytes) -> dict[str, Any] | None:
    """Return the content of an answer; None if the page shows mistakes."""
    _, given_answers = read_form(asked(schema), parse_body(body))
    return None if given_answers is None else given_answers["q"]["content"]


def views_of(schema: Mapping[str, Any]) -> tuple[FieldView, ...]:
    return form_of_questions(asked(schema)).questions[0].fields


def typed(schema: Mapping[str, Any], content: Mapping[str, Any], *, keeps_newlines: bool) -> dict[str, Any]:
    """Return content whose texts a person can type, if it is still valid, and has no required text that is empty."""
    changed = dict[str, Any](content)
    for field in fields_of(schema):
        value = changed.get(field.name)
        if isinstance(value, str) and not field.choices:
            # A control that shows an empty text as its default sends it, too.
            assume(value or keeps_newlines or not field.required)
            changed[field.name] = "".join(_key(char, keeps_newlines) for char in value)
        if isinstance(value, list):
            # A box is checked once.
            assume(len(set(cast("list[str]", value))) == len(cast("list[str]", value)))
    assume(accepts(schema, changed))
    return changed


def _key(char: str, keeps_newlines: bool) -> str:
    is_control = unicodedata.category(char) in ("Cc", "Cs")
    return "x" if is_control and not (char == "\n" and keeps_newlines) else char


def same(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return content for a comparison: moments to the millisecond, sorted choices, and nothing that is empty."""
    comparable = dict[str, Any](content)
    for field in fields_of(schema):
        value = comparable.get(field.name)
        if field.format == "date-time" and value is not None:
            moment = datetime.fromisoformat(value.upper())
            comparable[field.name] = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        if isinstance(value, list):
            comparable[field.name] = sorted(cast("list[str]", value))
        if value in ([], "") and not field.required:
            del comparable[field.name]
    return comparable


def fill_in(page: HtmlForm, view: FieldView, content: Mapping[str, Any]) -> None:
    value = content.get(view.field.name)
    match view.control:
        case Control.LINE | Control.LINES | Control.DATE:
            page.fill(view.id, "" if value is None else value if isinstance(value, str) else repr(value))
        case Control.MOMENT:
            found = MOMENT.fullmatch(value or "")
            page.fill(view.id, found[1] if found else "")
            page.choose(f"{view.id}-zone", found[2].upper().replace("+00:00", "Z") if found else "")
        case Control.RADIOS | Control.MENU | Control.CHECKBOXES:
            chosen = cast("list[Any]", value if isinstance(value, list) else [value])
            wires = [str(place) for place, choice in enumerate(view.field.choices) if choice.value in chosen]
            page.choose(view.id, *wires, *([YES_NO[value]] if isinstance(value, bool) else []))


@RUN
@given(schema=SCHEMAS, data=st.data())
def test_typed_content_arrives_as_the_same_content(schema: dict[str, Any], data: st.DataObject) -> None:
    assume(answerable(schema))
    content = typed(schema, data.draw(answers(schema)), keeps_newlines=False)
    page = opened(schema)
    for view in views_of(schema):
        fill_in(page, view, content)
    arrived = read(schema, page.body())
    assert arrived is not None
    assert same(schema, arrived) == same(schema, content)
    assert accepts(schema, arrived)


@RUN
@given(schema=SCHEMAS, data=st.data())
def test_review_that_changes_nothing_sends_the_earlier_answer(schema: dict[str, Any], data: st.DataObject) -> None:
    """Shows F3."""
    assume(answerable(schema))
    content = typed(schema, data.draw(answers(schema)), keeps_newlines=True)
    shapes = {
        name: {key: part for key, part in shape.items() if key != "default"}
        | ({"default": content[name]} if name in content else {})
        for name, shape in schema["properties"].items()
    }
    review = {**schema, "properties": shapes}
    arrived = read(review, opened(review).body())
    assert arrived is not None
    assert same(schema, arrived) == same(schema, content)


@RUN
@given(schema=SCHEMAS, data=st.data())
def test_whatever_is_sent_becomes_valid_content_or_mistakes(schema: dict[str, Any], data: st.DataObject) -> None:
    names = [name for name, _ in form_of_questions(asked(schema)).names()][2:]
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
        ["0", "1", "-1", "yes", "Z"]
    )
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(names), texts), max_size=6, unique_by=lambda pair: pair[0]))
    body = encode([("token", "t"), ("decision", "answer"), *pairs])
    page, given_answers = read_form(asked(schema), parse_body(body))
    assert (given_answers is None) == bool(page.mistakes)
    if given_answers is not None:
        assert accepts(schema, given_answers["q"]["content"])
    # The page with the mistakes has every text again, and a browser can send it.
    again = read_page(RENDERER.render("question.html.j2", form=page, token="t", notice=None))
    kept = dict(again.posted())
    for view in page.questions[0].fields:
        text = dict(pairs).get(view.id, "")
        if view.control in (Control.LINE, Control.LINES) and "\0" not in text:
            assert kept[view.id].replace("\r\n", "\n") == text.replace("\r\n", "\n").replace("\r", "\n")
