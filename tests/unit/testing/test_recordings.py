"""Files of recordings: their text, broken files, and the matching of messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from roundtrip.testing.recordings import BrokenRecording, RecordedMessage, Unrecordable, replay
from roundtrip.testing.recordings.document import Recording
from roundtrip.testing.recordings.recorder import paired
from roundtrip.testing.recordings.replaying import differences, significant

Json = dict[str, Any]

PING: Json = {"request": {"method": "ping"}, "response": {"result": {}}}


def recording(*parts: Json, **fields: Any) -> Json:
    return {"roundtripRecording": 1, "protocol": "2026-07-28", "conversation": list(parts or [PING]), **fields}


BROKEN: dict[str | bytes, str] = {
    "": "Invalid JSON",
    "{": "Invalid JSON",
    b"\x89PNG\xff\xfe": "Invalid JSON",
    "[1]": "Input should be an object",
    "{}": "roundtripRecording: Field required",
    json.dumps(recording(roundtripRecording=2)): "roundtripRecording: Input should be 1",
    json.dumps({**recording(), "conversation": []}): "conversation: List should have at least 1 item",
    json.dumps(recording({"said": {}})): "conversation.0: Unable to extract tag",
    json.dumps(recording(PING, {"request": {}})): "conversation.1.request.method: Field required",
    json.dumps(recording({**PING, "response": {}})): "conversation.0.response: Value error, either a result or an",
    json.dumps(recording({**PING, "meanwhile": [1]})): "conversation.0.meanwhile.0: Unable to extract tag",
    json.dumps(recording({**PING, "reponse": {}})): "conversation.0.reponse: Extra inputs are not permitted",
    json.dumps(recording(**{"\x1b[31m": 1})): r"\x1b[31m: Extra inputs",
    json.dumps(
        recording({**PING, "response": {"result": {"serverInfo": {"name": 7}}}})
    ): "serverInfo: Input should be a valid string",
}


def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"

    def said(content: str | bytes) -> str:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(BrokenRecording) as error:
            replay(path)
        return str(error.value)

    head = f"{path} is not a recording that can be played: "
    told = [(reason, said(content)) for content, reason in BROKEN.items()]
    assert [(reason, text) for reason, text in told if not text.startswith(head) or reason not in text] == []


def test_server_text_never_reaches_a_terminal_raw() -> None:
    said = "naïve \x1b[31m \x9b31m \u202e \x7f \U000e0041 \ud800 end"
    part = {"request": {"method": "ping"}, "response": {"result": {"text": said}}}
    text = Recording.model_validate(recording(part)).text()
    assert "naïve" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    assert json.loads(text)["conversation"][0] == part
    request = RecordedMessage(method="tools/call", params={"name": "\x1b[2J", "arguments": {"a": "\u202e"}})
    assert str(request).isprintable()


def test_a_placeholder_has_the_type_of_what_it_hides() -> None:
    schema = {"properties": {"card": {"type": "string"}}}
    secret = {
        "card": "4111",
        "pin": 1234,
        "code": {"digits": [1.5, None, True]},
        "film": "Solaris",
        "inputSchema": schema,
    }
    part = {"request": {"method": "tools/call", "params": {"arguments": secret, "pin": 7}}}
    names = ["arguments.pin", "card", "code"]
    hidden = Recording.model_validate(recording(part, redacted=names)).redact()
    assert hidden.exchanges[0].request.params == {
        "arguments": {
            "card": "[redacted]",
            "pin": 0,
            "code": {"digits": [0.0, None, False]},
            "film": "Solaris",
            "inputSchema": schema,
        },
        "pin": 7,
    }


DIFFERENCES: list[tuple[Json, Json, list[str]]] = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": True}, ["params.a: expected 1, got true"]),
    ({"a": 1}, {"a": 1.0}, []),
    ({"a": 1}, {}, ["params.a: expected 1, got nothing"]),
    ({}, {"a": None}, ["params.a: expected nothing, got null"]),
    ({"a": [1, 2]}, {"a": [1, 3, 4]}, ["params.a.1: expected 2, got 3", "params.a.2: expected nothing, got 4"]),
    ({"a": {"b": "x"}}, {"a": "x"}, ['params.a: expected {"b": "x"}, got "x"']),
    ({"a": "\x1b"}, {"a": "\u202e"}, [r'params.a: expected "\u001b", got "\u202e"']),
    ({"secret": "x"}, {"secret": "y"}, []),
    ({"secret": "x"}, {}, ['params.secret: expected "x", got nothing']),
    ({"a": {"b": 1}}, {"a": {"b": 2}}, []),
]


def test_differences_are_listed_by_path() -> None:
    told = [differences(expected, got, ("params",), ["secret", "a.b"]) for expected, got, _ in DIFFERENCES]
    assert told == [lines for *_, lines in DIFFERENCES]


def test_long_texts_show_where_they_begin_to_differ() -> None:
    expected, got = "a" * 100 + "b" * 100, "a" * 100 + "c"
    (line,) = differences({"requestState": expected}, {"requestState": got}, ("params",), ())
    assert line == (
        f'params.requestState: expected …"{"a" * 12}{"b" * 48}"… (200 characters), got …"{"a" * 12}c" (101 characters)'
    )


def test_clients_that_mean_the_same_are_the_same() -> None:
    answer = {"action": "decline"}
    assert significant({"name": "x", "arguments": {}, "requestState": None, "_meta": {"progressToken": 1}}) == {
        "name": "x"
    }
    assert significant(None) == {}
    assert significant({"inputResponses": {"k": {**answer, "_meta": {"a": 1}}}}) == {"inputResponses": {"k": answer}}
    assert significant({"arguments": {"_meta": 1}}) == {"arguments": {"_meta": 1}}


def conversation(*messages: tuple[str, Json]) -> list[Json]:
    """Record messages, each with the first letter of its sender."""
    said = paired(("client" if sender == "c" else "server", message) for sender, message in messages)
    return [part.model_dump(mode="json", exclude_defaults=True) for part in said.parts]


def test_replies_find_their_requests_in_any_order() -> None:
    assert conversation(
        ("c", {"id": 1, "method": "tools/list"}),
        ("c", {"id": "1", "method": "prompts/list", "params": {"_meta": {"a": 1}, "cursor": "c"}}),
        ("s", {"id": "1", "error": {"code": -5, "message": "no"}}),
        ("s", {"id": 1, "result": {"tools": []}}),
    ) == [
        {"request": {"method": "tools/list"}, "response": {"result": {"tools": []}}},
        {
            "request": {"method": "prompts/list", "params": {"cursor": "c"}},
            "response": {"error": {"code": -5, "message": "no"}},
        },
    ]


def test_notification_is_matched_to_its_call() -> None:
    one, other = conversation(
        ("c", {"id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": 7}}}),
        ("c", {"id": 2, "method": "tools/list"}),
        ("s", {"method": "notifications/progress", "params": {"progressToken": 7, "progress": 1}}),
        ("s", {"method": "notifications/message", "params": {"data": "d"}}),
        ("s", {"id": 1, "method": "roots/list"}),
        ("c", {"id": 1, "result": {"roots": []}}),
        ("s", {"id": 2, "result": {}}),
        ("s", {"id": 1, "result": {}}),
        ("s", {"method": "notifications/tools/list_changed"}),
    )
    assert one["meanwhile"] == [
        {"notification": {"method": "notifications/progress", "params": {"progress": 1}}},
        {"question": {"method": "roots/list"}, "answer": {"result": {"roots": []}}},
    ]
    assert other["meanwhile"] == [
        {"notification": {"method": "notifications/message", "params": {"data": "d"}}},
        {"notification": {"method": "notifications/tools/list_changed"}},
    ]


def test_a_call_that_was_cancelled_asks_nothing_any_more() -> None:
    given_up, other = conversation(
        ("c", {"id": 1, "method": "tools/call", "params": {"name": "a"}}),
        ("c", {"method": "notifications/cancelled", "params": {"requestId": 1}}),
        ("c", {"id": 2, "method": "tools/call", "params": {"name": "b"}}),
        ("s", {"id": 9, "method": "roots/list"}),
    )
    assert given_up == {"request": {"method": "tools/call", "params": {"name": "a"}}}
    assert other["meanwhile"] == [{"question": {"method": "roots/list"}}]


def test_a_server_that_speaks_first_cannot_be_recorded() -> None:
    with pytest.raises(Unrecordable, match="the server spoke before the client did"):
        conversation(("s", {"method": "notifications/tools/list_changed"}))


def test_question_while_two_calls_are_open_cannot_be_recorded() -> None:
    with pytest.raises(Unrecordable, match=r"while 2 calls were open, .* Record one call after the other"):
        conversation(
            ("c", {"id": 1, "method": "tools/call", "params": {"name": "a"}}),
            ("c", {"id": 2, "method": "tools/call", "params": {"name": "b"}}),
            ("s", {"id": 9, "method": "roots/list"}),
        )
