"""The fast lane answers every request as the SDK's transport does, and does the same work for it."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from roundtrip.http import fast_lane
from tests.kit.tiers import examples
from tests.kit.wire import meta_of
from tests.property.twins import MAX_BYTES, Post, Seen, Twins, spans_of

Compare = Callable[[Post, bool, bool], tuple[Seen, Seen]]

REVISION: Final = "2026-07-28"
META: Final = meta_of("tester", {"elicitation": {"form": {}}})
LEFT_TO_THE_SDK: Final = {"ping", "initialize", "completion/complete", "logging/setLevel", "x/unknown"}
NAME_KEYS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    2**70,
    "",
    "x",
    "1",
    "é",
    "\ud800",
    [],
    {},
    [1],
    {"a": 1},
)
JUNK_HEADERS: Final = (
    "",
    " ",
    "x",
    "2025-11-25",
    "2026-07-28",
    "2026-07-29",
    "tools/call",
    "tools/list",
    "ADD",
    "é",
    "add, add",
)
HEADER_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "accept": (
        "application/json",
        "text/event-stream",
        "*/*",
        "application/*, text/*",
        "application/json;q=0.1, text/event-stream",
        "APPLICATION/JSON,text/event-stream",
        "text/html",
    ),
    "content-type": (
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/jsonx",
        "text/plain",
        " application/json",
    ),
    "content-length": ("0", "1", "5", "99999999", "+5", "-1", "5 ", "x", "9" * 5000, "²"),
    "host": (
        "ours.example",
        "OURS.example",
        "ours.example:80",
        "127.0.0.1",
        "127.0.0.1:80",
        "evil.example",
        "127.0.0.1:80.evil.example",
    ),
    "origin": ("https://ours.example", "http://127.0.0.1:9", "https://evil.example", "null"),
    "mcp-session-id": ("abc",),
    "mcp-name": ("=?base64?YWRk?=", "=?base64?YWRk", "=?base64?!!?=", "=?base64?YWRl?="),
    "mcp-param-region": ("north", "south", "=?base64?bm9ydGg=?=", "é"),
    "mcp-param-count": ("3", "3.0", "3.5", "x"),
    "mcp-param-other": ("x",),
    "last-event-id": ("1",),
    "traceparent": ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",),
}
HEADER_NAMES: Final = (*HEADER_VALUES, "mcp-protocol-version", "mcp-method")
META_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "progressToken": ("token", 7, True, 1.5, None, ""),
    "io.modelcontextprotocol/logLevel": ("debug", "info", "warning", "emergency", "loud", None, 3),
    "io.modelcontextprotocol/protocolVersion": ("2025-11-25", "2026-07-29", None, 3),
    "io.modelcontextprotocol/clientInfo": (None, {}, {"name": "x"}, {"name": "x", "version": 1}, "x"),
    "io.modelcontextprotocol/clientCapabilities": (
        None,
        {},
        {"elicitation": {}},
        {"elicitation": {"url": {}}},
        {"sampling": 3},
        "x",
    ),
    "traceparent": ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x", 3),
    "roundtrip/version": ("1", 3),
    "other": ("x", {"deep": [1, {"a": None}]}),
}
CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    *(
        ("tools/call", {"name": name, "arguments": arguments})
        for name, arguments in (
            ("add", {"a": 1, "b": 2}),
            ("add", {"a": "1"}),
            ("add", {"a": "many", "c": 3}),
            *(
                ("numbers", {"which": which})
                for which in ("nan", "infinity", "large", "integer", "none", "keys", "text", "x")
            ),
            ("crash", {"text": "secret"}),
            ("fail", {"text": "sorry"}),
            *(("refuse", {"code": code, "text": "no"}) for code in (-32602, -32601, -32603, -32000, 5)),
            ("dinner", {"food": "fish"}),
            *[("routed", {"region": "north", "count": 3})] * 4,
            ("routed", {"region": "north"}),
            ("report", {"steps": 2}),
            ("report", {"steps": 0}),
            ("log", {"text": "told"}),
            ("log", {"text": "told", "level": "warning"}),
            ("report_and_crash", {}),
            ("wait", {}),
            ("request", {}),
            ("missing", {}),
        )
    ),
    ("tools/call", {"name": "request"}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "x"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("prompts/get", {"name": "greet"}),
    ("prompts/get", {"name": "missing"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "menu://today"}),
    ("resources/read", {"uri": "menu://monday"}),
    ("resources/read", {"uri": "file://bytes"}),
    ("resources/read", {"uri": "missing://x"}),
    ("server/discover", {}),
    ("ping", {}),
    ("initialize", {}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
    ),
    ("logging/setLevel", {"level": "info"}),
    ("x/unknown", {}),
)


class Draft:
    """Request that is being spoiled."""

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.message: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": deepcopy(META)}}
        self.headers: list[tuple[str, str]] = [
            ("host", "127.0.0.1:8000"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", REVISION),
            ("mcp-method", method),
        ]
        if method in NAME_KEYS:
            self.headers.append(("mcp-name", params.get(NAME_KEYS[method], "")))
        if params.get("name") == "routed":
            arguments = params["arguments"]
            self.headers += [(f"mcp-param-{key}", str(value)) for key, value in arguments.items()]
        self.raw: bytes | None = None

    def meta(self) -> dict[str, Any]:
        return self.message["params"]["_meta"]

    def body(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.message).encode()


def _places(value: object) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        holder = cast("dict[str, object]", value)
        for key, inner in holder.items():
            yield holder, key
            yield from _places(inner)


def _spoil_body(draw: st.DrawFn, draft: Draft) -> None:
    places = list(_places(draft.message))
    if not places:
        return
    holder, key = draw(st.sampled_from(places))
    match draw(st.sampled_from(("remove", "replace", "add", "rename"))):
        case "remove":
            del holder[key]
        case "replace":
            holder[key] = deepcopy(draw(st.sampled_from(JUNK)))
        case "add":
            extra = ("requestState", "inputResponses", "cursor", "extra", "id", "arguments", "task", "result", "error")
            holder[draw(st.sampled_from(extra))] = deepcopy(draw(st.sampled_from(JUNK)))
        case _:
            holder[key.upper()] = holder.pop(key)


def _spoil_meta(draw: st.DrawFn, draft: Draft) -> None:
    key = draw(st.sampled_from(sorted(META_VALUES)))
    with suppress(KeyError, TypeError):  # an earlier fault may have removed the place
        draft.meta()[key] = deepcopy(draw(st.sampled_from(META_VALUES[key])))


def _spoil_header(draw: st.DrawFn, draft: Draft) -> None:
    names = HEADER_NAMES if draw(st.booleans()) else sorted({name for name, _ in draft.headers})
    name = draw(st.sampled_from(names or HEADER_NAMES))
    present = [number for number, (known, _) in enumerate(draft.headers) if known == name]
    value = draw(st.sampled_from(HEADER_VALUES.get(name, ()) + JUNK_HEADERS))
    match draw(st.sampled_from(("remove", "replace", "repeat", "case", "add"))):
        case "remove" if present:
            del draft.headers[present[0]]
        case "replace" if present:
            draft.headers[present[0]] = (name, value)
        case "repeat" if present:
            draft.headers.append(draft.headers[present[0]])
        case "case" if present:
            draft.headers[present[0]] = (name, draft.headers[present[0]][1].upper())
        case _:
            draft.headers.append((name, value))


def _spoil_raw(draw: st.DrawFn, draft: Draft) -> None:
    body = draft.body()
    text = json.dumps({"jsonrpc": "2.0"})[1:-1].encode()
    draft.raw = draw(
        st.sampled_from(
            (
                b"",
                b"null",
                b"[" + body + b"]",
                body[:-1],
                body + b" \n",
                body + b"x",
                b" \t" + body,
                b"\xef\xbb\xbf" + body,
                body.decode().encode("utf-16"),
                body.decode().encode("utf-32-le"),
                body.replace(b'"2.0"', b"NaN", 1),
                body.replace(b'"id": 1', b'"id": 1, "id": 2', 1),
                body.replace(b'"id": 1', b'"id": 1e2', 1),
                body.replace(b'"id": 1', b'"id": -0', 1),
                body.replace(b'"id": 1', b'"id": 01', 1),
                body.replace(b'"id": 1', b'"id": "\\ud800"', 1),
                body.replace(b'"id": 1', b'"id": "\\u00e9\xc3\xa9"', 1),
                body.replace(b'"id": 1', b'"id": "\xff"', 1),
                body.replace(b'"id": 1', b'"id": "\n"', 1),
                body.replace(b'"id": 1', b'"id": ' + b"9" * 30, 1),
                body.replace(b'"id": 1', b'"id": ' + b"9" * 4400, 1),
                body.replace(b'"params"', b'"extra": [Infinity, -Infinity, 1e999, -0.0], "params"', 1),
                body.replace(b'"params"', b'"extra": ' + b"[" * 300 + b"]" * 300 + b', "params"', 1),
                body.replace(b'"params"', b'"extra": ' + b"[" * 5000 + b"]" * 5000 + b', "params"', 1),
                body.replace(b'"params"', b'"extra": "' + b"a" * 5000 + b'", "params"', 1),
                body.replace(b'"params"', b'"extra": "' + b"a" * MAX_BYTES + b'", "params"', 1),
                text,
            )
        )
    )


Spoiler = Callable[[st.DrawFn, Draft], None]

SPOILERS: Final[tuple[Spoiler, ...]] = (_spoil_body, _spoil_meta, _spoil_header, _spoil_raw)


@st.composite
def posts(draw: st.DrawFn, spoilers: Sequence[Spoiler] = SPOILERS) -> Post:
    """Return requests, most of them with few faults."""
    draft = Draft(*deepcopy(draw(st.sampled_from(CALLS))))
    if draw(st.booleans()):
        draft.meta()["progressToken"] = "progress"
    if draw(st.booleans()):
        draft.meta()["io.modelcontextprotocol/logLevel"] = "info"
    for spoil in draw(st.lists(st.sampled_from(spoilers), max_size=3)) if spoilers else []:
        if draft.raw is None:
            spoil(draw, draft)
    pieces = draw(st.sampled_from((1, 1, 1, 2, 5)))
    return Post(tuple(draft.headers), draft.body(), pieces=pieces, cut=draw(st.integers(0, 19)) == 0)


def _post(method: str, params: dict[str, Any], **meta: Any) -> Post:
    draft = Draft(method, params)
    draft.meta().update(meta)
    return Post(tuple(draft.headers), draft.body())


ADD: Final = _post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})


@pytest.fixture(scope="module")
def compare() -> Iterator[Compare]:
    """Return a function that sends a request to both ways."""
    provider = TracerProvider()
    exporter = spans_of(provider)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr("roundtrip.limited_logs._Budget.spend", _no_limit)
        both = Twins(runner.get_loop())

        def seen(post: Post, json_only: bool, checks_names: bool) -> tuple[Seen, Seen]:
            return runner.run(both.compare(post, exporter, json_only=json_only, checks_names=checks_names))

        yield seen
        runner.run(both.close())


def _no_limit(*_: object) -> int:
    return 0


def _differences(fast: Seen, slow: Seen) -> list[str]:
    return [
        f"{name}: {getattr(fast, name)!r} is not {getattr(slow, name)!r}"
        for name in ("sent", "raised", "notes", "logged", "spans")
        if repr(getattr(fast, name)) != repr(getattr(slow, name))
    ]


def _hold(compare: Compare, post: Post, json_only: bool, checks_names: bool) -> None:
    assert _differences(*compare(post, json_only, checks_names)) == []


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(post=posts(), json_only=st.booleans(), checks_names=st.booleans())
@example(post=ADD, json_only=True, checks_names=True)
@example(post=replace(ADD, headers=(*ADD.headers, ("Mcp-Name", "other"))), json_only=True, checks_names=True)
@example(post=replace(ADD, headers=(*ADD.headers, ("origin", " "))), json_only=False, checks_names=True)
def test_both_ways_do_the_same(compare: Compare, post: Post, json_only: bool, checks_names: bool) -> None:
    _hold(compare, post, json_only, checks_names)


def _yes(*_: object, **__: object) -> bool:
    return True


def _lower(value: str | None) -> str | None:
    return value and value.lower()


def _untyped_event(message: bytes) -> bytes:
    return b"data: " + message + b"\r\n\r\n"


FAULTS: Final[dict[str, tuple[object, str, object, tuple[Spoiler, ...]]]] = {
    "status": (fast_lane, "_OK", 201, ()),
    "event": (fast_lane, "_event", _untyped_event, ()),
    "client": (fast_lane, "CLIENT_INFO_META_KEY", "client", ()),
    "host that is not checked": (fast_lane, "_is_allowed", _yes, (_spoil_header,)),
    "name in another case": (fast_lane, "decode_header_value", _lower, (_spoil_header,)),
    "type of the id": (fast_lane, "_ID_TYPES", (int, str, float), (_spoil_raw,)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_seeded_difference_is_found(compare: Compare, fault: str) -> None:
    holder, name, wrong, spoilers = FAULTS[fault]

    @settings(max_examples=2000, deadline=None, phases=[Phase.generate], database=None, derandomize=True)
    @given(post=posts(spoilers), json_only=st.booleans(), checks_names=st.booleans())
    def search(post: Post, json_only: bool, checks_names: bool) -> None:
        _hold(compare, post, json_only, checks_names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, name, wrong)
        with pytest.raises((AssertionError, ExceptionGroup)):
            search()


def test_sound_request_takes_the_lane(compare: Compare) -> None:
    replaying: Any = vars(fast_lane)["replaying"]
    to_the_sdk: list[tuple[str, dict[str, Any]]] = []
    with pytest.MonkeyPatch.context() as patch:
        for call in CALLS:
            if call[0] not in LEFT_TO_THE_SDK:

                def noted(*args: Any, call: tuple[str, dict[str, Any]] = call) -> Any:
                    to_the_sdk.append(call)
                    return replaying(*args)

                patch.setattr(fast_lane, "replaying", noted)
                compare(_post(*call), False, True)
    assert to_the_sdk == []


def test_other_verbs_are_rejected_alike(compare: Compare) -> None:
    verbs = product(("GET", "DELETE", "PUT", "HEAD"), (True, False))
    seen = {one: _differences(*compare(replace(ADD, verb=one[0]), one[1], False)) for one in verbs}
    assert [one for one, differences in seen.items() if differences] == []


def test_client_that_leaves_cancels_its_call(compare: Compare) -> None:
    post = replace(_post("tools/call", {"name": "hang", "arguments": {}}), leaves=True)

    fast, slow = compare(post, False, False)

    assert ("cancelled",) in fast.notes
    assert _differences(fast, slow) == []
