"""Call states as JSON for the app's view: the same forms and texts as on the question pages.

Texts from questions and decisions are printable. The view shows them as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roundtrip.pages import calls
from roundtrip.pages.calls import PageState, ShownDecision
from roundtrip.pages.controls import Control, ControlOption, FieldView
from roundtrip.pages.forms import PageForm, QuestionView, form_of_questions
from roundtrip.pages.settings import PageLook
from roundtrip.questions.fields import FieldKind
from roundtrip.text import printable


def look_of(look: PageLook) -> dict[str, Any]:
    """Return the look of a server's questions for the view."""
    return {
        "name": look.name,
        "accent": look.accent,
        "dark_accent": look.dark_accent,
        "language": look.language,
        # An app has no network, so the logo must be part of the payload.
        "logo": look.logo if look.image_source == "data:" else None,
    }


def payload_of(
    state: PageState,
    round_: str | None,
    *,
    form: PageForm | None = None,
    notice: str | None = None,
) -> dict[str, Any]:
    """Return a call's state for the view.

    Args:
        state: The state for the view's user.
        round_: The name under which the view answers this round. Only an asking call has one.
        form: The form as the user filled it in. None for a form with its defaults.
        notice: A sentence about the user's last answer.
    """
    match state:
        case calls.AskingPage(_, questions):
            return _asking(form_of_questions(questions) if form is None else form, round_, notice)
        case calls.WorkingPage(_, needs_client):
            # Then the call continues only after the model has called `continue_call`.
            return {"kind": "working", "continue_in_chat": needs_client, "notice": notice}
        case calls.AwaitingPage(groups):
            return {"kind": "awaiting", "groups": [printable(group) for group in groups], "notice": notice}
        case calls.EndedPage(text, is_error, decisions):
            text = None if text is None else printable(text, keep_newlines=True)
            shown = [_decision(decision) for decision in decisions]
            return {"kind": "ended", "is_error": is_error, "text": text, "decisions": shown, "notice": notice}
        case calls.ClosedPage():
            # The view must not reveal why there is nothing to answer.
            return {"kind": "closed"}


def _asking(form: PageForm, round_: str | None, notice: str | None) -> dict[str, Any]:
    return {
        "kind": "asking",
        "round": round_,
        "notice": notice,
        "questions": [_question(question) for question in form.questions],
        "mistakes": [{"target": one.target, "label": one.label, "text": one.text} for one in form.mistakes],
    }


def _question(question: QuestionView) -> dict[str, Any]:
    return {
        "id": question.id,
        "kind": question.kind.value,
        "heading": question.heading,
        "text": question.text,
        "fields": [_field(view) for view in question.fields],
        "url": question.url,
        "shown_url": question.shown_url,
        "host": question.host,
        "choice": question.choice,
        "choice_name": question.choice_name,
        "error": question.error,
    }


def _field(view: FieldView) -> dict[str, Any]:
    return {
        "id": view.id,
        "names": list(view.names),
        "control": view.control.value,
        "label": view.label,
        "about": view.about,
        "hint": view.hint,
        "typed": list(view.typed),
        "error": view.error,
        "required": view.field.required,
        "input_mode": view.input_mode,
        "is_email": view.field.format == "email",
        "is_yes_no": view.field.kind is FieldKind.YES_NO,
        "options": _options(view.options),
        "zones": _options(view.zones) if view.control is Control.MOMENT else [],
    }


def _options(options: Sequence[ControlOption]) -> list[dict[str, Any]]:
    return [{"id": one.id, "wire": one.wire, "label": one.label, "chosen": one.chosen} for one in options]


def _decision(decision: ShownDecision) -> dict[str, Any]:
    reason = decision.reason
    return {
        "message": printable(decision.message.partition("\n")[0]),
        "by": printable(decision.by),
        "outcome": decision.outcome,
        "reason": None if reason is None else printable(reason, keep_newlines=True),
    }
