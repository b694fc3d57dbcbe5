"""Consent: which tools ask, and why."""

import logging
from typing import Any

import pytest
from mcp_types import Tool, ToolAnnotations

from roundtrip import InvalidSignature, Server
from roundtrip.tools.consent_rules import ConsentPolicy, ConsentReport

NO_HINTS, MARKED, CHOSEN = "without hints", "with destructiveHint=True", "chosen by the consent= function"
HINTS = {
    "none": None,
    "empty": ToolAnnotations(title="t"),
    "reads": ToolAnnotations(read_only_hint=True),
    "writes": ToolAnnotations(read_only_hint=False),
    "adds": ToolAnnotations(destructive_hint=False),
    "destroys": ToolAnnotations(destructive_hint=True),
    "both": ToolAnnotations(read_only_hint=True, destructive_hint=True),
}


def tool(hints: str) -> Tool:
    return Tool(name=hints, input_schema={}, annotations=HINTS[hints])


def is_named_reads(tool: Tool) -> bool:
    return tool.name == "reads"


@pytest.mark.parametrize(
    ("rule", "asking"),
    [
        ("destructive", {"none": NO_HINTS, "empty": NO_HINTS, "writes": NO_HINTS, "destroys": MARKED}),
        ("marked", {"destroys": MARKED, "both": MARKED}),
        (is_named_reads, {"reads": CHOSEN}),
    ],
    ids=["destructive", "marked", "function"],
)
def test_rule_decides_which_tools_ask(rule: Any, asking: dict[str, str]) -> None:
    consent = ConsentPolicy(rule)
    assert {hints: why for hints in HINTS if (why := consent.reason(tool(hints))) is not None} == asking


@pytest.mark.parametrize("rule", ["destructive", "marked"])
def test_hints_of_strangers_never_keep_a_tool_from_asking(rule: Any) -> None:
    distrusting, trusting = ConsentPolicy(rule), ConsentPolicy(rule, trusts_hints=True)
    for hints in HINTS:
        own = distrusting.reason(tool(hints))
        assert trusting.reason(tool(hints), is_foreign=True) == own
        foreign = distrusting.reason(tool(hints), is_foreign=True)
        assert foreign == own or (own is None and foreign == NO_HINTS and rule == "destructive")
    assert distrusting.reason(tool("destroys"), is_foreign=True) == MARKED


def test_function_does_not_see_hints_of_strangers() -> None:
    seen: list[ToolAnnotations | None] = []

    def rule(each: Tool) -> bool:
        seen.append(each.annotations)
        return True

    ConsentPolicy(rule).reason(tool("reads"), is_foreign=True)
    ConsentPolicy(rule, trusts_hints=True).reason(tool("reads"), is_foreign=True)
    assert seen == [None, HINTS["reads"]]


async def no_rule(tool: Tool) -> bool:
    return True


@pytest.mark.parametrize("rule", ["all", True, 1, no_rule])
def test_unknown_rule_is_rejected(rule: Any) -> None:
    with pytest.raises(TypeError, match=r"^consent= must be 'destructive', 'marked', or a plain function"):
        Server("shop", consent=rule)


def test_function_must_answer_true_or_false() -> None:
    with pytest.raises(InvalidSignature, match="consent= must return True or False for tool 'none', got NoneType"):
        ConsentPolicy(lambda tool: None).reason(tool("none"))  # type: ignore[arg-type,return-value]  # pyright: ignore


def test_trusting_hints_needs_consent() -> None:
    assert ConsentPolicy.of(None) is ConsentPolicy.of(False) is None
    with pytest.raises(TypeError, match=r"^trust_hints= must be given together with consent="):
        ConsentPolicy.of(None, trust_hints=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consent": True, "confirm": "Sure?"}, "tool 'f' must not have both confirm= and consent="),
        ({"consent": False, "confirm": "Sure?"}, "tool 'f' must not have both confirm= and consent="),
        ({"consent": "destructive"}, "tool 'f': consent must be True or False, got 'destructive'"),
    ],
)
def test_contradicting_options_of_a_tool_are_rejected(options: Any, message: str) -> None:
    with pytest.raises(InvalidSignature, match=message):
        Server("shop").tool(lambda: "done", name="f", **options)


def test_report_counts_each_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "roundtrip")
    report = ConsentReport(
        "shop", lambda: zip("abcd", [NO_HINTS, None, MARKED, NO_HINTS], strict=True), others=lambda: 2
    )
    report.start()
    report.start()
    assert [record.message for record in caplog.records] == [
        "consent: on server 'shop', 3 of 4 tools ask their users before they run (2 without hints, 1 with "
        "destructiveHint=True); tools of 2 other providers are checked when a client calls them",
        "consent: on server 'shop', these tools ask: a, c, d",
    ]
