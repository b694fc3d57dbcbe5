"""Tells what was found, for people and for programs."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from roundtrip.doctor.facts import Observed
from roundtrip.doctor.findings import Finding, Level, builds_text

__all__ = ["as_data", "as_lines"]

Part = str | tuple[str, str]
"""Some text, perhaps with a style."""

Line = tuple[int, tuple[Part, ...]]
"""How far it is indented, and what it says."""

_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


def as_lines(seen: Observed, findings: Sequence[Finding]) -> Iterator[Line]:
    """The report, line by line. Much of it is what servers say, and nobody has made that safe yet."""
    for instance in seen.instances.values():
        facts = instance.facts
        places = ", ".join(seen.places[number].url for number in sorted(instance.places))
        yield 0, ((f"{seen.label(facts.instance)}  {facts.name}", "bold"), f" at {places} (instance {facts.instance})")
        keys = ", ".join(facts.keys) if facts.keys else "of its own codec"
        once = "" if facts.exactly_once else " (not needed)"
        yield 4, (f"keys {keys}; audience {facts.audience}; {builds_text(facts)}; ledger {facts.ledger}{once}",)
        clock = f"clock {instance.offset:+.1f} s (give or take {instance.uncertainty:.1f})"
        revisions = ", ".join(seen.places[min(instance.places)].revisions)
        versions = f"roundtrip {facts.roundtrip}, mcp {facts.mcp}, Python {facts.python}; protocol {revisions}"
        yield 4, (f"{clock}; {versions}",)
    if seen.instances:
        yield 0, ()
    for finding in findings:
        yield 0, ((f"{finding.level.value:<9}", _STYLES[finding.level]), f"{finding.topic}: {finding.text}")
        if finding.advice:
            yield 9, (finding.advice,)
    yield 0, ()
    yield 0, ((_summary(seen, findings), "bold"),)


def _summary(seen: Observed, findings: Sequence[Finding]) -> str:
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    met = f"{len(seen.instances)} instance{'s' if len(seen.instances) != 1 else ''} met"
    if len(seen.instances) < seen.sought:
        met = f"{len(seen.instances)} of {seen.sought} instances met"
    if not problems:
        return f"{met}: no problems"
    return f"{met}: {problems} problem{'s' if problems != 1 else ''}"


def as_data(seen: Observed, findings: Sequence[Finding]) -> dict[str, Any]:
    """The same as JSON would have it."""
    return {
        "met": len(seen.instances),
        "sought": seen.sought,
        "places": [
            {
                "url": place.url,
                "trouble": place.trouble.value if place.trouble is not None else None,
                "detail": place.detail,
                "instances": seen.behind(number),
                "revisions": list(place.revisions),
                "probes": place.probes,
                "quiet": place.quiet,
                "failures": place.failures,
                "ready": place.ready,
                "older_clients": place.live.value,
                "older_clients_detail": place.live_detail,
            }
            for number, place in enumerate(seen.places)
        ],
        "instances": [
            {
                "label": seen.label(instance.facts.instance),
                **instance.facts.model_dump(mode="json", exclude={"clock", "mark", "marked", "saw", "looked"}),
                "offset": round(instance.offset, 3),
                "uncertainty": round(instance.uncertainty, 3),
                "ledger_seen": instance.look.value if instance.look is not None else None,
            }
            for instance in seen.instances.values()
        ],
        "journeys": [
            {
                "start": seen.places[journey.start].url,
                "end": seen.places[journey.end].url,
                "reached": journey.reached.value,
                "began": journey.began,
                "ended": journey.ended,
                "detail": journey.detail,
            }
            for journey in seen.journeys
        ],
        "findings": [
            {
                "level": finding.level.value,
                "topic": finding.topic,
                "text": finding.text,
                "advice": finding.advice,
            }
            for finding in findings
        ],
    }
