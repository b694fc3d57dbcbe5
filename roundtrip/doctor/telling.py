"""Write the doctor's report as lines of text and as JSON data."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from roundtrip.client.terminal import Line
from roundtrip.doctor.facts import Facts, Observed
from roundtrip.doctor.findings import Finding, Level, builds_text

_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


def as_lines(seen: Observed, findings: Sequence[Finding]) -> Iterator[Line]:
    """Return the lines of the report; text of servers in them is not escaped."""
    for instance in seen.instances.values():
        facts = instance.facts
        places = ", ".join(seen.places[number].url for number in sorted(instance.places))
        yield 0, ((f"{seen.label(facts.instance)}  {facts.name}", "bold"), f" at {places} (instance {facts.instance})")
        keys = ", ".join(facts.keys) if facts.keys else "of its own codec"
        once = "" if facts.needs_ledger else " (not needed)"
        yield 4, (f"keys {keys}; audience {facts.audience}; {builds_text(facts)}; ledger {facts.ledger}{once}",)
        clock = f"clock {instance.offset:+.1f} s (give or take {instance.uncertainty:.1f})"
        revisions = ", ".join(seen.places[min(instance.places)].revisions)
        versions = f"roundtrip {facts.roundtrip}, mcp {facts.mcp}, Python {facts.python}; protocol {revisions}"
        if facts.transport is not None:
            versions += f"; served by {facts.transport}"
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
    count = len(seen.instances)
    met = f"{count} of {seen.sought}" if count < seen.sought else str(count)
    plural = "" if met == "1" else "s"
    return f"{met} instance{plural} met: {problems or 'no'} problem{'' if problems == 1 else 's'}"


def as_data(seen: Observed, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "met": len(seen.instances),
        "sought": seen.sought,
        "places": [{**asdict(place), "instances": seen.behind(number)} for number, place in enumerate(seen.places)],
        "instances": [
            {
                "label": seen.label(instance.facts.instance),
                **instance.facts.model_dump(mode="json", include=set(Facts.model_fields)),
                "offset": round(instance.offset, 3),
                "uncertainty": round(instance.uncertainty, 3),
                "ledger_seen": instance.look,
            }
            for instance in seen.instances.values()
        ],
        "journeys": [
            {**asdict(journey), "start": seen.places[journey.start].url, "end": seen.places[journey.end].url}
            for journey in seen.journeys
        ],
        "findings": [asdict(finding) for finding in findings],
    }
