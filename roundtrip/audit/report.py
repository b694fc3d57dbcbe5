"""The audit's report as text lines, JSON or JUnit XML."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree

from roundtrip.audit.clauses import ClauseLevel
from roundtrip.audit.findings import AuditReport, ClauseFinding, ClauseVerdict
from roundtrip.client.terminal import Line

_STYLES: Final = {
    ClauseVerdict.FAILED: "bold red",
    ClauseVerdict.FACT: "yellow",
    ClauseVerdict.PASSED: "green",
    ClauseVerdict.UNTRIED: "dim",
}
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT: Final = 28


def as_data(report: AuditReport, level: ClauseLevel) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "server": report.server,
        "target": report.target,
        "tools": list(report.tools),
        "requests": report.requests,
        "seconds": round(report.seconds, 3),
        "calls": {
            name: {"begun": report.begun.get(name, 0), "completed": report.ended.get(name, 0)} for name in report.tools
        },
        "failed": bool(report.failures(level)),
        "findings": [
            {
                "clause": finding.clause.id,
                "level": finding.clause.level.value,
                "demand": finding.clause.demand,
                "source": finding.clause.source,
                "tool": finding.tool,
                "verdict": finding.verdict.value,
                "attempts": finding.attempts,
                "texts": list(finding.texts),
            }
            for finding in report.findings
        ],
    }


def as_lines(report: AuditReport, level: ClauseLevel) -> Iterator[Line]:
    """Yield the report's lines. Text from servers is not escaped."""
    yield 0, ((report.server, "bold"), f" at {report.target}")
    yield 0, ()
    for (id, verdict, texts), findings in _grouped(report).items():
        if verdict is ClauseVerdict.UNTRIED:
            continue
        clause = findings[0].clause
        head = (f"{verdict.value:<7}", _STYLES[verdict])
        yield 0, (head, f" {clause.level.value:<6} {id:<13}{clause.demand}{_where(findings, report)}")
        yield from ((_INDENT, (text,)) for text in texts)
    reasons: dict[str, list[str]] = {}
    for (id, verdict, texts), findings in _grouped(report).items():
        if verdict is ClauseVerdict.UNTRIED:
            reasons.setdefault("; ".join(texts), []).append(f"{id}{_where(findings, report)}")
    if reasons:
        yield 0, ()
        yield 0, (("could not be tried", _STYLES[ClauseVerdict.UNTRIED]),)
        for reason, clauses in reasons.items():
            yield 2, (f"{', '.join(clauses)}: {reason}",)
    yield 0, ()
    for name in report.tools:
        begun, ended = report.begun.get(name, 0), report.ended.get(name, 0)
        yield 0, (f"{name}: {begun} calls begun, {ended} results",)
    yield 0, ((_summary(report, level), "bold"),)


def _grouped(report: AuditReport) -> dict[tuple[str, ClauseVerdict, tuple[str, ...]], list[ClauseFinding]]:
    """Group findings that differ only in their tools."""
    grouped: dict[tuple[str, ClauseVerdict, tuple[str, ...]], list[ClauseFinding]] = {}
    for finding in report.findings:
        grouped.setdefault((finding.clause.id, finding.verdict, finding.texts), []).append(finding)
    return grouped


def _where(findings: list[ClauseFinding], report: AuditReport) -> str:
    tools = [finding.tool for finding in findings if finding.tool is not None]
    return f" [{', '.join(tools)}]" if tools and len(tools) < len(report.tools) else ""


def _summary(report: AuditReport, level: ClauseLevel) -> str:
    counts = dict.fromkeys(ClauseVerdict, 0)
    for finding in report.findings:
        counts[finding.verdict] += 1
    failed = len(report.failures(level))
    totals = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    return f"{report.requests} requests: {totals}; {failed or 'none'} of the failures count ({level.value} and above)"


def as_junit(report: AuditReport, level: ClauseLevel) -> str:
    """Return the report as JUnit XML: one suite for each tool, and one for the server.

    If a clause could not be tried, or failed at a level below the given one, its test is marked as skipped. If a fact
    was recorded, the test passes, and its output states the fact.
    """
    root = ElementTree.Element("testsuites", name="roundtrip audit")
    total = Counter[str]()
    for tool in (None, *report.tools):
        findings = [finding for finding in report.findings if finding.tool == tool]
        if not findings:
            continue
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(tool or "server"))
        kinds = Counter(_case(suite, finding, level) for finding in findings)
        counts = {"tests": len(findings), "failures": kinds["failure"], "errors": 0, "skipped": kinds["skipped"]}
        total.update(counts)
        suite.attrib |= {name: str(count) for name, count in counts.items()}
        suite.set("time", "0")
    root.attrib |= {name: str(count) for name, count in total.items()}
    root.set("time", f"{report.seconds:.3f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, finding: ClauseFinding, level: ClauseLevel) -> str:
    """Add a test case to the suite, and return the kind of result."""
    clause = finding.clause
    named = _xml(f"{finding.tool or 'server'}.{clause.level.value}")
    case = ElementTree.SubElement(suite, "testcase", classname=named, name=f"{clause.id}: {clause.demand}", time="0")
    text = _xml("\n".join(finding.texts))
    if finding.counts(level):
        ElementTree.SubElement(case, "failure", type=clause.level.value, message=text.partition("\n")[0]).text = text
        return "failure"
    if finding.verdict in (ClauseVerdict.FAILED, ClauseVerdict.UNTRIED):
        prefix = f"failed, but only {clause.level.value}: " if finding.verdict is ClauseVerdict.FAILED else ""
        ElementTree.SubElement(case, "skipped", message=f"{prefix}{text}")
        return "skipped"
    if text:
        ElementTree.SubElement(case, "system-out").text = text
    return "passed"


def _xml(text: str) -> str:
    """Escape characters that XML cannot contain."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
