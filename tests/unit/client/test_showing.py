"""Addresses are shown with their true hosts and opened only if they are plain; targets and arguments are read."""

from typing import Any

import pytest
from mcp_types import ElicitRequestURLParams, Tool

from roundtrip.client.failures import CallFailed
from roundtrip.client.person import can_be_opened, show_page
from roundtrip.client.targets import target_of
from roundtrip.client.terminal import Terminal
from roundtrip.client.tools import arguments_of, kind_of, required_by

HOSTS = [
    ("https://example.com/a?b#c", "example.com"),
    ("https://bank.example@evil.example/", "evil.example"),
    ("HTTPS://EXAMPLE.com:8443/", "example.com"),
    ("https://b\u0430nk.example/", "xn--bnk-6cd.example (written b\u0430nk.example)"),
    ("mailto:ada@example.com", "(none)"),
    ("https://[::1", "(none)"),
    ("https://evil.example\\@bank.example/pay", "(unclear: there is a backslash in the address)"),
]


def test_the_host_is_where_the_address_goes(capsys: pytest.CaptureFixture[str]) -> None:
    for url, _ in HOSTS:
        show_page(Terminal(), ElicitRequestURLParams(message="Go.", url=url))
    shown = "".join(f"| Go.\nAddress: {url}\nHost:    {host}\n" for url, host in HOSTS)
    assert capsys.readouterr().err == shown


PLAIN = ["https://example.com/a?b#c", "http://localhost:8000", "HTTP://example.com"]
ODD = [
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://evil.example\\@bank.example/pay",
    "--help",
    "https://",
    "https://[::1",
    "https://a b",
    "https://a\x1b[2J",
    "https://a\u202eb",
    " https://a",
    "ssh://example.com",
]


def test_only_plain_addresses_can_be_opened() -> None:
    assert [url for url in (*PLAIN, *ODD) if can_be_opened(url)] == PLAIN


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe_text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "maybe_count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "kind": {"$ref": "#/$defs/Kind"},
        "point": {"$ref": "#/$defs/Point"},
        "loop": {"$ref": "#/properties/loop"},
        "sure": {"type": "boolean"},
        "types": {"type": ["integer", "string"]},
        "any": {},
    },
    "$defs": {"Kind": {"enum": ["1", "2"]}, "Point": {"type": "object"}},
}
TOOL = Tool(name="t", input_schema=SCHEMA)


VALUES: list[tuple[str, object]] = [
    ("text=3", "3"),
    ("text=a=b", "a=b"),
    ("text=@file", "@file"),
    ("text:=3", 3),
    ("maybe_text=null", "null"),
    ("maybe_count=null", None),
    ("maybe_count=3", 3),
    ("kind=1", "1"),
    ('point={"x": 1}', {"x": 1}),
    ("loop=1", "1"),
    ("types=1", "1"),
    ("any=1", "1"),
]


def test_a_value_is_json_only_where_text_does_not_fit() -> None:
    assert [list(arguments_of(TOOL, [word]).values()) for word, _ in VALUES] == [[value] for _, value in VALUES]


WRONG = [
    ("maybe_count=x", "'maybe_count' must be an integer or null, got 'x'"),
    ("maybe_count=NaN", "'maybe_count' must be an integer or null, got 'NaN'"),
    ("sure=yes", "'sure' must be true or false, got 'yes'"),
    ("point=x", "'point' must be JSON (object), got 'x'"),
    ("point={x}", "'point' must be JSON (object), got '{x}': Expecting property name"),
]


def test_value_of_another_type_is_rejected_in_plain_words() -> None:
    for word, told in WRONG:
        with pytest.raises(CallFailed) as caught:
            arguments_of(TOOL, [word])
        assert str(caught.value).startswith(f"the argument {told}")
        assert ("Expecting" in str(caught.value)) == ("Expecting" in told)


def test_self_referring_schema_is_shown_to_a_limited_depth() -> None:
    for word in ("anyOf", "allOf", "oneOf"):
        schema = {"properties": {"p": {"$ref": "#/$defs/a"}}, "$defs": {"a": {word: [{"$ref": "#/$defs/a"}] * 8}}}
        tool = Tool(name="t", input_schema=schema)
        assert kind_of(tool, "p")
        assert arguments_of(tool, ["p=3"]).keys() == {"p"}


def test_invalid_list_of_required_parameters_requires_nothing() -> None:
    given: list[Any] = [5, None, "p", [{}], [7]]
    tools = [Tool(name="t", input_schema={"properties": {"p": {}}, "required": required}) for required in given]
    assert [(required_by(tool), arguments_of(tool, [])) for tool in tools] == [([], {})] * len(given)


def test_an_address_or_a_command_is_a_target() -> None:
    assert target_of("https://cinema.example/mcp").url == "https://cinema.example/mcp"
    assert target_of("python -m 'my shop'").command == ("python", "-m", "my shop")


def test_other_addresses_are_reported_and_not_run_as_commands() -> None:
    for text in ("ftp://cinema.example", "ws://cinema.example/mcp", "HTTP+unix://cinema"):
        with pytest.raises(CallFailed, match=r"is not an http\(s\) address"):
            target_of(text)
    for text in ("http://[::1:8000/mcp", "http://shop:99999/mcp", "http://shop:x/mcp", "https:///mcp"):
        with pytest.raises(CallFailed, match="the address"):
            target_of(text)
