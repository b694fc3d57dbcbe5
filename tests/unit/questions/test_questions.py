"""Questions: the request, the pin, the reading of answers, and the required capability."""

import functools
from typing import TYPE_CHECKING, Any, cast

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    ListRootsRequest,
    ListRootsResult,
    Root,
    TextContent,
    Tool,
)
from pydantic import BaseModel, FileUrl

from roundtrip.approvals.markers import Approve
from roundtrip.machine.journal import Action
from roundtrip.machine.pins import digest
from roundtrip.questions.forms import AnswerInvalid
from roundtrip.questions.markers import (
    ATTEMPTS,
    Elicit,
    ElicitUrl,
    ListRoots,
    Marker,
    Sample,
    SdkElicit,
)
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.wire import FormQuestion, ModelQuestion, question_of
from roundtrip.tools.confirmation import ToolConfirmation
from tests.kit.raised import raised
from tests.kit.shops import Choice

if TYPE_CHECKING:
    from decimal import Decimal


TOOLS = [Tool(name="dice", input_schema={"type": "object"})]
SAID = CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")
ROOTS = ListRootsResult(roots=[Root(uri=FileUrl("file:///books"))])


def message_of(request: InputRequest) -> str:
    assert isinstance(request, ElicitRequest)
    assert isinstance(request.params, ElicitRequestFormParams)
    return request.params.message


# What is sent.


def test_a_complaint_follows_the_message_and_moves_no_digest() -> None:
    question = question_of(Elicit("Sure?", Choice))
    before = (question.message, question.schema)
    assert message_of(question.request("ok: Field required")).startswith("Sure?")
    assert "ok: Field required" in message_of(question.request("ok: Field required"))
    assert (question.message, question.schema) == before == (digest("Sure?"), question.schema)
    request = question.request()
    assert isinstance(request, ElicitRequest)
    assert isinstance(request.params, ElicitRequestFormParams)
    assert request.params.message == "Sure?"
    assert request.params.requested_schema["properties"] == {"ok": {"type": "boolean", "title": "Ok"}}


def test_equal_questions_are_pinned_alike_whichever_library_wrote_them() -> None:
    ours, theirs = question_of(Elicit("Sure?", Choice)), question_of(SdkElicit("Sure?", Choice))
    assert (ours.message, ours.schema) == (theirs.message, theirs.schema)
    assert (theirs.attempts, theirs.volatile_ok) == (ATTEMPTS, False)


def test_the_wording_of_a_sample_is_all_of_its_parameters() -> None:
    variants = [
        Sample("hi", max_tokens=5),
        Sample("ho", max_tokens=5),
        Sample("hi", max_tokens=6),
        Sample("hi", max_tokens=5, system_prompt="be brief"),
        Sample("hi", max_tokens=5, temperature=0.5),
    ]
    assert len({question_of(marker).message for marker in variants}) == len(variants)
    assert question_of(Sample("hi", max_tokens=5)).message == question_of(variants[0]).message


# What comes back.


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (ElicitResult(action="accept", content={"ok": True}), Outcome(Choice(ok=True))),
        (ElicitResult(action="decline"), Outcome(action=Action.DECLINE)),
        (ElicitResult(action="cancel"), Outcome(action=Action.CANCEL)),
        (ElicitResult(action="decline", content={"ok": "a lot of words"}), Outcome(action=Action.DECLINE)),
    ],
    ids=["accepted", "declined", "cancelled", "declined with content"],
)
def test_an_answer_to_a_form_is_read_and_restored_alike(response: ElicitResult, outcome: Outcome) -> None:
    question = question_of(Elicit("Sure?", Choice))
    read, data = question.read(response)
    assert read == outcome == question.restore(read.action, data)
    if read.action is not Action.ACCEPT:
        assert data is None


@pytest.mark.parametrize(
    ("marker", "request_type", "value"),
    [
        (Sample("hi", max_tokens=5), CreateMessageRequest, SAID),
        (
            Sample("hi", max_tokens=5, tools=TOOLS),
            CreateMessageRequest,
            CreateMessageResultWithTools.model_validate(SAID.model_dump(by_alias=True)),
        ),
        (ListRoots(), ListRootsRequest, ROOTS),
    ],
    ids=["sample", "sample with tools", "roots"],
)
def test_the_software_is_asked_and_read_in_its_own_way(marker: Marker, request_type: Any, value: Any) -> None:
    question = question_of(marker)
    assert isinstance(question, ModelQuestion)
    assert isinstance(question.request(), request_type)
    assert question.result_type is type(value)
    read, data = question.read(ROOTS if isinstance(marker, ListRoots) else SAID)
    assert read == Outcome(value) == question.restore(Action.ACCEPT, data)
    with pytest.raises(AnswerInvalid):
        question.read(ElicitResult(action="decline"))


@pytest.mark.parametrize("wrong", [0, True, "3", 1.5])
def test_attempts_are_a_count(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"Sample\(attempts=...\) must be a whole number of at least 1"):
        Sample("Think.", max_tokens=9, attempts=wrong)
    with pytest.raises(ValueError, match="at least 1, got"):
        Elicit("Sure?", Choice, attempts=wrong)


class Payment(BaseModel):
    paid: int


class Checks:
    def __call__(self, other: "Decimal") -> Payment:
        raise NotImplementedError


def checked(secret: str, other: "Decimal") -> Payment:
    raise NotImplementedError


def test_value_of_a_page_has_the_type_that_done_returns() -> None:
    done: list[Any] = [checked, functools.partial(checked, "s"), Checks(), Checks().__call__]
    questions = [question_of(ElicitUrl("Pay.", "https://shop.example/pay", done=each)) for each in done]
    assert [question.plain(Payment(paid=5)) for question in questions] == [{"paid": 5}] * 4
    restored = [question.restore(Action.ACCEPT, {"paid": 5}).value for question in questions]
    assert restored == [Payment(paid=5)] * 4


# Pages.


def test_page_wording_excludes_only_its_ticket() -> None:
    first, second = ("rt1.e30." + letter * 43 for letter in "AB")

    def pinned(message: str, url: str) -> bytes:
        return question_of(ElicitUrl(message, url, schemes=["https", "ttps"])).message

    url = "https://bookshop.example/login"
    assert pinned("Log in.", f"{url}?t={first}&x=1") == pinned("Log in.", f"{url}?t={second}&x=1")
    wordings = [
        pinned("Log in.", url),
        pinned("Log in!", url),
        pinned("Log in.", f"{url}/"),
        pinned("Log in.", f"{url}?t={first}"),
        pinned("Log in.", f"{url}?t={first}&x=1"),
        pinned("Log in.", f"{url}?t={first}&x=2"),
        # Message and URL are distinguished.
        pinned("Log in.h", url[1:]),
    ]
    assert len(set(wordings)) == len(wordings)


def test_forms_are_for_a_human_unless_anyone_may_answer() -> None:
    unsaid = question_of(Elicit("How many?", int))
    human, anyone = [question_of(Elicit("How many?", int, answered_by=who)) for who in ("human", "anyone")]
    questions = (unsaid, human, question_of(SdkElicit("How many?", Choice)), anyone)
    assert [isinstance(one, FormQuestion) and one.is_for_anyone for one in questions] == [False, False, False, True]
    # No digest changes by it.
    assert (human.message, human.schema) == (anyone.message, anyone.schema)


@pytest.mark.parametrize("given", ["model", "", None, True])
def test_unknown_answered_by_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"answered_by=\.\.\.\) must be 'human' or 'anyone', got"):
        Elicit("How many?", int, answered_by=given)


# URLs that pages may have.


ADDRESSES = (
    "https://shop.example/pay?t=1",
    "HTTP://shop.example",
    "http://localhost:8000/x",
    "https://[::1]/x",
    "https://müller.example/ä",
)
OTHERS = (
    "javascript:alert(1)",
    "JavaScript://shop.example/%0aalert(1)",
    "data:text/html,<script>",
    "file:///etc/passwd",
    "vscode://install",
    " https://shop.example",
    "java\nscript:alert(1)",
    "ht\ttps://shop.example",
    "\x01javascript:alert(1)",
    "https:\\\\shop.example",
    "https://shop.example\\@evil.example",
    "https:shop.example",
    "https://",
    "https:///pay",
    "https://?x",
    "//shop.example/pay",
    "/pay",
    "shop.example",
    "",
)


def test_a_page_is_a_web_address() -> None:
    assert [ElicitUrl("Pay.", url).url for url in ADDRESSES] == list(ADDRESSES)


def test_anything_else_is_rejected_and_not_repeated() -> None:
    told = {url: str(raised(ElicitUrl, "Pay.", url)) for url in OTHERS}
    assert [url for url, text in told.items() if "the url of a page must" not in text] == []
    repeated = ("script", "passwd", "evil", "alert")
    assert [text for text in told.values() if any(part in text for part in repeated)] == []


def test_an_author_may_allow_another_scheme_in_place_of_these() -> None:
    assert ElicitUrl("Open.", "myapp://login", schemes=["MyApp"]).url == "myapp://login"
    with pytest.raises(ValueError, match="must begin with myapp:, but"):
        ElicitUrl("Open.", "https://shop.example", schemes=["myapp"])


def test_approval_is_as_long_as_a_person_can_read_and_no_longer() -> None:
    for limit in (Approve.max_chars, Approve.max_chars + 1):
        shown = "Run it?\n\nscript: ''"
        confirmation = ToolConfirmation.of(Approve("Run it?", by="f"), tool="run", arguments={"script": ""})
        script = "x" * (limit - len(shown))
        if limit == Approve.max_chars:
            assert len(Approve("x" * limit, by="f").message) == limit
            assert len(cast(Approve, confirmation.question({"script": script})).message) == limit
        else:
            with pytest.raises(ValueError, match="people have to read it"):
                Approve("x" * limit, by="f")
            with pytest.raises(ToolError, match=f"at most {Approve.max_chars} characters"):
                confirmation.question({"script": script})
