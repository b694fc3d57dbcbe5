"""`roundtrip.trace.reading.otlp`: the document that a collector receives of a recorded call."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Recorder, Server
from roundtrip.testing import Clock, Era, Hop, LegByLeg, User
from roundtrip.trace.reading.calls import TracedCall, join
from roundtrip.trace.reading.otlp import otlp_document
from roundtrip.trace.reading.transcripts import files_of, read_files
from roundtrip.trace.writing.lines import LINE
from tests.kit.bookshop import bookshop
from tests.kit.tables import check_each

pytestmark = pytest.mark.anyio

ARGUMENTS: Final = {"title": "Neuromancer"}
ROUNDS: Final[list[dict[str, dict[str, Any]]]] = [
    {"confirm_backorder": {"confirm": True}},
    {"how_many": {"copies": 2}},
]

Span = Mapping[str, Any]


def shops(folder: Path, names: str, **options: Any) -> list[Server[Any]]:
    """Return instances that each write a transcript with all values."""
    return [
        bookshop(trace=Recorder(folder / f"{name}.jsonl", instance=name, reveal="all"), **options) for name in names
    ]


def recorded(folder: Path) -> TracedCall:
    (found,) = join(read_files(files_of([folder])).lines).calls.values()
    return found


def spans_of(document: Mapping[str, Any]) -> list[Span]:
    return [
        span for resource in document["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]
    ]


def plain(attributes: list[Any]) -> dict[str, Any]:
    """Return attributes as a mapping; OTLP's JSON wraps each value in its type."""
    return {attribute["key"]: plain_value(attribute["value"]) for attribute in attributes}


def plain_value(value: Mapping[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [plain_value(one) for one in inner["values"]]
        case _:
            return inner


def told(*lines: Mapping[str, Any]) -> TracedCall:
    """Return the call of some lines."""
    head = {"v": 1, "instance": "a", "serving": 1, "call": "c", "leg": 1, "round": 0, "at": 1.0}
    (found,) = join(LINE.validate_python({**head, **line}) for line in lines).calls.values()
    return found


BEGAN: Final = {"event": "began", "method": "tools/call", "tool": "order", "era": "retry", "build": "1", "plan": "p"}


async def test_every_leg_is_a_span_linked_to_the_former(tmp_path: Path) -> None:
    await User(shops(tmp_path, "abc"), ROUNDS, network=Hop()).call("order", ARGUMENTS)
    document = json.loads(json.dumps(otlp_document(recorded(tmp_path)), allow_nan=False))
    assert json.loads(json.dumps(otlp_document(recorded(tmp_path)))) == document
    instances = [plain(resource["resource"]["attributes"]) for resource in document["resourceSpans"]]
    assert [instance["service.instance.id"] for instance in instances] == ["a", "b", "c"]
    first, second, third = spans_of(document)
    assert len({span["spanId"] for span in (first, second, third)}) == 3
    assert first["links"] == []
    for span, former in ((second, first), (third, second)):
        assert [(link["traceId"], link["spanId"]) for link in span["links"]] == [(first["traceId"], former["spanId"])]
    for span in (first, second, third):
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert span["kind"] in range(1, 6)
        times = [span["startTimeUnixNano"], *(event["timeUnixNano"] for event in span["events"])]
        assert all(isinstance(time, str) and time.isdecimal() for time in times)
        assert int(span["startTimeUnixNano"]) <= int(times[-1]) <= int(span["endTimeUnixNano"])
        assert set(span["status"]) <= {"code"}


async def test_span_lists_questions_reasons_and_pending(tmp_path: Path) -> None:
    hopper = LegByLeg(shops(tmp_path, "a"))
    await hopper.leg("order", ARGUMENTS)
    await hopper.leg("order", ARGUMENTS, answers={}, state=hopper.token)
    _, span = spans_of(otlp_document(recorded(tmp_path)))
    attributes = plain(span["attributes"])
    assert attributes["roundtrip.tool"] == "order"
    assert attributes["roundtrip.leg"] == 2
    assert attributes["roundtrip.round"] == 2
    assert attributes["roundtrip.state"] == "awaiting_input"
    assert attributes["roundtrip.pending"] == ["confirm_backorder"]
    assert attributes["roundtrip.token.received_bytes"] > 0
    asked = [plain(event["attributes"]) for event in span["events"] if event["name"] == "roundtrip.asked"]
    assert asked == [{"roundtrip.key": "confirm_backorder", "roundtrip.reason": "missing", "roundtrip.round": 2}]


async def test_span_events_are_the_transitions_of_the_machine(tmp_path: Path, era: Era) -> None:
    (server,) = shops(tmp_path, "a")
    await User(server, {"confirm_backorder": {"confirm": True}, "how_many": {"copies": 2}}, era=era).call(
        "order", ARGUMENTS
    )
    traced = recorded(tmp_path)
    spans = spans_of(otlp_document(traced))
    assert len(spans) == (3 if era is Era.RETRY else 1)
    events = [event for span in spans for event in span["events"]]
    talk = [event["name"] for event in events if "moved" not in event["name"]]
    assert sorted(talk) == ["roundtrip.answered"] * 2 + ["roundtrip.asked"] * 2
    moves = [plain(event["attributes"]) for event in events if "moved" in event["name"]]
    assert [(move["roundtrip.event"], move["roundtrip.state"]) for move in moves] == [
        (event, state) for _, event, state in traced.arrows
    ]


async def test_leg_begins_with_the_awaited_answers(tmp_path: Path, clock: Clock) -> None:
    hopper = LegByLeg(shops(tmp_path, "ab"))
    await hopper.leg("order", ARGUMENTS)
    clock.advance(42)
    await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
    first, second = spans_of(otlp_document(recorded(tmp_path)))
    assert "roundtrip.answered" not in [event["name"] for event in first["events"]]
    answered = second["events"][0]
    assert answered["name"] == "roundtrip.answered"
    assert plain(answered["attributes"]) == {"roundtrip.waited": pytest.approx(42, abs=0.5)}


def test_repeated_leg_links_to_its_earlier_serving() -> None:
    asked: dict[str, Any] = {"event": "asked", "by": "body", "questions": [], "ms": 1}
    lines: list[dict[str, Any]] = [
        {**BEGAN, "serving": 1, "at": 1.0},
        {**asked, "serving": 1, "at": 1.1},
        {**BEGAN, "serving": 2, "at": 5.0},
        {**asked, "serving": 2, "at": 5.1},
        {**BEGAN, "serving": 3, "leg": 2, "at": 3.0},
        {**BEGAN, "serving": 4, "leg": 2, "at": 7.0},
        {**BEGAN, "serving": 5, "leg": 4, "at": 9.0},
    ]
    first, replayed, second, again, late = spans_of(otlp_document(told(*lines)))
    assert second["links"][0]["spanId"] == first["spanId"]
    assert again["links"][0]["spanId"] == replayed["spanId"]
    assert late["links"][0]["spanId"] == again["spanId"]
    rejected = {"event": "rejected", "reason": "expired", "method": "tools/call", "leg": 3, "round": 2}
    (alone,) = spans_of(otlp_document(told(rejected)))
    assert (alone["name"], alone["links"]) == ("roundtrip.rejected ?", [])
    assert plain(alone["attributes"])["roundtrip.leg"] == 3


async def test_rejected_token_is_an_error_span_with_its_reason(tmp_path: Path, clock: Clock) -> None:
    hopper = LegByLeg(shops(tmp_path, "ab", ttl=60))
    await hopper.leg("order", ARGUMENTS)
    clock.advance(61)
    with pytest.raises(MCPError):
        await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
    leg, rejected = spans_of(otlp_document(recorded(tmp_path)))
    assert rejected["status"] == {"code": 2}
    assert plain(rejected["attributes"])["roundtrip.reason"] == "expired"
    assert [link["spanId"] for link in rejected["links"]] == [leg["spanId"]]


async def test_revealing_transcript_still_hides_confidential_values(tmp_path: Path) -> None:
    (server,) = shops(tmp_path, "a")

    @server.tool()
    async def leak(title: str) -> str:
        raise RuntimeError(f"cannot find {title}")

    await User(server, {"confirm_backorder": {"confirm": True}, "how_many": {"copies": 2187}}, era=Era.RETRY).call(
        "order", {"title": "Neuromancer"}
    )
    await User(server, era=Era.RETRY).call("leak", {"title": "Neuromancer"})
    traced = join(read_files(files_of([tmp_path])).lines)
    assert "Neuromancer" in (tmp_path / "a.jsonl").read_text()
    for found in traced.calls.values():
        text = json.dumps(otlp_document(found))
        assert "Neuromancer" not in text
        assert not re.search(r"(?<![0-9a-f])2187(?![0-9a-f])", text)
        assert "cannot find" not in text


def test_only_what_went_wrong_is_an_error() -> None:
    def check(ended: dict[str, Any], error: str | None) -> None:
        (span,) = spans_of(otlp_document(told(BEGAN, {"event": "ended", "ms": 5, **ended})))
        assert span["status"] == ({} if error is None else {"code": 2})
        assert plain(span["attributes"]).get("error.type") == error
        assert plain(span["attributes"])["roundtrip.state"] == ended["state"]

    check_each(
        [
            ({"state": "completed"}, None),
            ({"state": "completed", "is_error": True}, "tool_error"),
            ({"state": "declined", "decline": "declined"}, None),
            ({"state": "failed", "error": {"type": "KeyError", "text": {"value": "secret"}}}, "KeyError"),
            ({"state": "rejected"}, "rejected"),
        ],
        check,
    )


def test_a_time_or_name_that_cannot_be_still_gives_a_document() -> None:
    def check(at: float) -> None:
        (span,) = spans_of(otlp_document(told({**BEGAN, "at": at, "leg": 10**30, "tool": "or\ud800der 📚"})))
        assert 0 <= int(span["startTimeUnixNano"]) < 2**63
        assert 0 < plain(span["attributes"])["roundtrip.leg"] < 2**63
        assert span["name"] == "roundtrip.leg or\ufffdder 📚"
        json.dumps(span, ensure_ascii=False).encode()

    check_each([-5.0, 1e11, 1e300], check)
