"""Reports of audits as text, JSON and JUnit's XML, read with parsers of other authors."""

import json
from typing import Final
from xml.etree import ElementTree

from roundtrip.audit.clauses import CLAUSES, ClauseLevel
from roundtrip.audit.findings import AuditNotes, AuditReport, ClauseVerdict, ToolNotes, findings_in
from roundtrip.audit.report import as_data, as_junit, as_lines

HOSTILE: Final = 'a state with "]]> & <b>\x1b[31m\x00\ud800 was accepted'


def report() -> AuditReport:
    notes = AuditNotes(ToolNotes)
    notes[None].passed("R1")
    book = notes["book"]
    book.passed("S4.truncated")
    book.failed("S4.tampered", HOSTILE)
    book.failed("S7.missing", "it was not asked for again")
    book.fact("A4", "a state can be read")
    book.untried("S5.expiry", "it takes --stale")
    return AuditReport(
        "cinema 1", "http://127.0.0.1:1/mcp", ["book"], list(findings_in(notes)), 7, 1.25, {"book": 3}, {"book": 1}
    )


def verdicts(level: ClauseLevel) -> dict[str, str]:
    """Read the XML as CI servers do, and return the kind of each test case by clause."""
    root = ElementTree.fromstring(as_junit(report(), level))
    kinds: dict[str, str] = {}
    for suite in root.iter("testsuite"):
        cases = list(suite.iter("testcase"))
        children = [next((child.tag for child in case), "passed") for case in cases]
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(children.count("failure"))
        assert suite.get("skipped") == str(children.count("skipped"))
        for case, kind in zip(cases, children, strict=True):
            kinds[(case.get("name") or "").partition(":")[0]] = kind
    for name in ("tests", "failures", "skipped"):
        assert root.get(name) == str(sum(int(suite.get(name) or 0) for suite in root.iter("testsuite")))
    return kinds


def test_junit_counts_failures_at_the_level_and_above() -> None:
    kinds = verdicts(ClauseLevel.MUST)
    assert kinds.keys() == CLAUSES.keys()
    assert (kinds["S4.tampered"], kinds["S7.missing"]) == ("failure", "skipped")
    assert (kinds["A4"], kinds["R1"], kinds["S5.expiry"]) == ("system-out", "passed", "skipped")
    assert verdicts(ClauseLevel.SHOULD)["S7.missing"] == "failure"
    (failure,) = ElementTree.fromstring(as_junit(report(), ClauseLevel.MUST)).iter("failure")
    assert failure.text == 'a state with "]]> & <b>\\u001b[31m\\u0000\\ud800 was accepted'
    assert failure.get("type") == "MUST"


def test_json_has_the_report_and_each_finding() -> None:
    data = json.loads(json.dumps(as_data(report(), ClauseLevel.MUST)))
    findings = data.pop("findings")
    assert data == {
        "server": "cinema 1",
        "target": "http://127.0.0.1:1/mcp",
        "tools": ["book"],
        "requests": 7,
        "seconds": 1.25,
        "calls": {"book": {"begun": 3, "completed": 1}},
        "failed": True,
    }
    assert {one["clause"] for one in findings} == CLAUSES.keys()
    tampered = next(one for one in findings if one["clause"] == "S4.tampered")
    assert tampered == {
        "clause": "S4.tampered",
        "level": "MUST",
        "demand": "A state with a changed character is rejected.",
        "source": "basic/patterns/mrtr",
        "tool": "book",
        "verdict": "failed",
        "attempts": 1,
        "texts": [HOSTILE],
    }


def test_failures_count_at_their_level_and_below() -> None:
    levels = (ClauseLevel.MUST, ClauseLevel.SHOULD, ClauseLevel.ADVICE)
    assert [len(report().failures(level)) for level in levels] == [1, 2, 2]


def test_attempts_count_unless_they_are_withdrawn() -> None:
    notes = AuditNotes(ToolNotes)
    book = notes["book"]
    book.untried("S4.forged", "the state is not JSON, so no value in it was rewritten")
    book.passed("S4.forged")
    book.passed("S5.tool")
    book.withdraw("S5.tool", "the honest request was rejected too")
    found = {one.clause.id: (one.verdict, one.texts) for one in findings_in(notes)}
    assert found["S4.forged"] == (ClauseVerdict.PASSED, ())
    assert found["S5.tool"] == (ClauseVerdict.UNTRIED, ("the honest request was rejected too",))


def test_text_has_reasons_once_and_evidence_below_its_clause() -> None:
    lines = [
        "".join(part if isinstance(part, str) else part[0] for part in parts)
        for _, parts in as_lines(report(), ClauseLevel.MUST)
    ]
    assert lines[0] == "cinema 1 at http://127.0.0.1:1/mcp"
    place = lines.index("failed  MUST   S4.tampered  A state with a changed character is rejected.")
    assert lines[place + 1] == HOSTILE
    assert "S5.expiry: it takes --stale" in lines
    assert lines[-1].endswith("1 of the failures count (MUST and above)")
