"""Parts of transcript lines as JSON text (see `lines.py`): questions, waits, and token contents.

Text is built directly, because building objects first made writing six times as slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, cast

from mcp_types import CreateMessageRequest, ElicitRequest, ElicitRequestURLParams, ListRootsRequest

from roundtrip.engine.ports import Wait
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import Journal
from roundtrip.questions.forms import Form
from roundtrip.questions.wire import ExternalQuestion, FormQuestion, PendingQuestion, UrlQuestion
from roundtrip.trace.writing.redaction import Redaction
from roundtrip.tracing import Era, ServedFunction


def render_approval(redaction: Redaction, waiting: PendingQuestion) -> str:
    """Return the JSON object for an approval that a call waits for."""
    question = cast("ExternalQuestion", waiting.question)
    message = redaction.render("questions", question.text)
    return f'{{"key":{quoted(redaction.name(waiting.key))},"by":{quoted(question.by)},"message":{message}}}'


def render_wait(redaction: Redaction, wait: Wait) -> str:
    """Return the JSON object for a time or signal that a task waits for."""
    parts = [] if wait.signal is None else [f'"signal":{quoted(redaction.name(wait.signal))}']
    parts += [] if wait.until is None else [f'"until":{wait.until:.3f}']
    return f"{{{','.join(parts)}}}"


def render_question(redaction: Redaction, waiting: PendingQuestion) -> str:
    """Return the JSON object for a question as it was sent, with the reason for asking it."""
    question, render = waiting.question, redaction.render
    if isinstance(question, FormQuestion):
        form = question.form
        schema = (
            redaction.render_cached("questions", form.digest, form.schema)
            if isinstance(form, Form)
            else render("questions", form.schema)
        )
        shown = f'"kind":"form","message":{render("questions", question.text)},"form":{schema}'
        last = waiting.invalid_answer
        filled = form.valid_fields(last) if last is not None and isinstance(form, Form) else None
        if filled:
            shown += f',"filled":{render("answers", filled)}'
    elif isinstance(question, UrlQuestion):
        shown = _page_members(render("questions", question.text), render("questions", question.url))
    else:
        shown = render_request(redaction, question.request())
    if waiting.changed:
        shown += f',"changed":{array([quoted(part) for part in waiting.changed])}'
    if waiting.former is not None:
        shown += f',"former":{quoted(redaction.name(waiting.former))}'
    if waiting.asked.attempts:
        shown += f',"attempt":{waiting.asked.attempts + 1}'
    if waiting.complaint is not None:
        shown += f',"complaint":{render("answers", waiting.complaint)}'
    return f"{{{_named_question(redaction, waiting.key, waiting.reason)},{shown}}}"


def computed_values(redaction: Redaction, former: Journal | None, journal: Journal) -> str:
    """Return the JSON member for the values that the server fixed on this leg."""
    known: Mapping[str, Any] = former.computed if former is not None else {}
    fixed = [
        f"{quoted(computed_name(key, redaction.name))}:{redaction.render('steps', computed.value)}"
        for key, computed in journal.computed.items()
        if known.get(key) != computed
    ]
    return f',"computed":{{{",".join(fixed)}}}' if fixed else ""


def render_request(redaction: Redaction, request: Any) -> str:
    """Return the JSON members for a question in its wire form."""
    render = redaction.render
    if isinstance(request, ElicitRequest):
        params = request.params
        message = render("questions", params.message)
        if isinstance(params, ElicitRequestURLParams):
            return _page_members(message, render("questions", params.url))
        return f'"kind":"form","message":{message},"form":{render("questions", params.requested_schema)}'
    if isinstance(request, CreateMessageRequest):
        return f'"kind":"sample","message":{render("questions", request.params)}'
    return '"kind":"roots"' if isinstance(request, ListRootsRequest) else '"kind":"form"'


def render_new_request(redaction: Redaction, key: str, request: Any) -> str:
    """Return the JSON object for a new question that an author wrote in wire form."""
    return f"{{{_named_question(redaction, key, Reason.NEW)},{render_request(redaction, request)}}}"


def _named_question(redaction: Redaction, key: str, reason: Reason) -> str:
    return f'"key":{quoted(redaction.name(key))},"reason":"{reason}"'


def subject_members(subject: ServedFunction, era: Era, protocol: str | None) -> str:
    """Return the JSON members that describe the function. They are part of a leg's first line."""
    members = (
        f'"method":"{subject.method}","tool":{quoted(subject.tool)},"era":"{era}",'
        f'"build":{quoted(subject.build)},"plan":{quoted(subject.plan)}'
    )
    if protocol is not None:
        members += f',"protocol":{quoted(protocol)}'
    if subject.version is not None:
        members += f',"version":{quoted(subject.version)}'
    return members


def array(items: list[str]) -> str:
    """Join JSON texts into an array."""
    return f"[{','.join(items)}]"


def _page_members(message: str, url: str) -> str:
    return f'"kind":"page","message":{message},"url":{url}'


def difference(before: Journal | None, after: Journal, name: Callable[[str], str]) -> str:
    """Return the JSON members that list which parts of a journal were added, dropped and changed."""
    old = _journal_parts(before, name) if before is not None else {}
    new = _journal_parts(after, name)
    difference = {
        "added": [quoted(part) for part in new if part not in old],
        "dropped": [quoted(part) for part in old if part not in new],
        "changed": [quoted(part) for part, value in new.items() if part in old and old[part] != value],
    }
    return "".join([f',"{how}":{array(parts)}' for how, parts in difference.items() if parts])


def computed_name(key: str, name: Callable[[str], str]) -> str:
    """Return a computed value's name. Question names in it are redacted."""
    # Some keys consist of a mark and a question's name. Such a key stands for the question's answer.
    mark = key[: len(key) - len(key.lstrip("~"))]
    return mark + name(key[len(mark) :])


def _journal_parts(journal: Journal, name: Callable[[str], str]) -> dict[str, Any]:
    parts: dict[str, Any] = {f"answer:{name(key)}": entry for key, entry in journal.entries.items()}
    parts |= {f"asked:{name(key)}": asked for key, asked in journal.asked.items()}
    for key, computed in journal.computed.items():
        parts[f"computed:{computed_name(key, name)}"] = computed
    if journal.authored is not None:
        parts["authored"] = journal.authored
    return parts
