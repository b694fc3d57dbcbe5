"""Report on a connected client: which questions it can be asked, and what is known about it. The client's texts are
untrusted.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types import ClientCapabilities

from roundtrip.channels.server_channels import UI_EXTENSION, renders_forms, shows_apps
from roundtrip.errors import CapabilityMissing
from roundtrip.known_clients import KINDS, STALE_DAYS, KnownClient, Support, known_client
from roundtrip.legs.requests import RequestClient
from roundtrip.questions.markers import Elicit, ElicitUrl, ListRoots, Sample
from roundtrip.questions.wire import question_of
from roundtrip.revisions import FIRST_OF_RETRY_ERA, is_retry_era
from roundtrip.tasks.extension import EXTENSION, declares_tasks
from roundtrip.text import printable

_MAX_NAME_CHARS: Final = 200
_MAX_DECLARED_CHARS: Final = 2000
_HASTY_SECONDS: Final = 0.5
"""Minimum number of seconds that a person needs to read a form. A faster answer was probably not given by a person."""

_PROBES: Final = {
    "form": Elicit("?", bool),
    "URL": ElicitUrl("?", "https://example.com"),
    "sampling": Sample("?", max_tokens=1),
    "roots": ListRoots(),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of showing the trial form."""

    answer: str
    seconds: float

    def __str__(self) -> str:
        text = f"a form: {self.answer} after {self.seconds:.3g} s"
        if self.seconds >= _HASTY_SECONDS:
            return text
        return f"{text}, faster than a person can read. If no form was shown, the client answered without its user"


@dataclass(frozen=True, slots=True)
class ClientReport:
    """Facts about a connected client."""

    name: str
    version: str
    revision: str
    declared: dict[str, Any]
    obstacles: dict[str, str]
    """For each kind of question, the reason that the client cannot be asked. The reason is empty if the client can be
    asked.
    """
    known: KnownClient | None
    renders_forms: bool = False
    """True if the client lets apps render its forms."""
    trial: Trial | None = None
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    @property
    def title(self) -> str:
        """Return the client's name and version, safe to print."""
        return printable(f"{self.name} {self.version}".strip()[:_MAX_NAME_CHARS]) or "a client without a name"

    @property
    def asked_how(self) -> str:
        """Describe where a server with question pages asks the client's user."""
        if not self.obstacles["form"]:
            return "in a form that an app renders" if self.renders_forms else "in a form"
        if not self.obstacles["URL"]:
            return "on a page that the client shows"
        return "in an app in the conversation" if not self.obstacles["apps"] else "on a page, by a link in the result"

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        how = "returned, and answered in a new request" if is_retry_era(self.revision) else "sent over its connection"
        yield f"{self.title}, protocol {self.revision}: questions are {how}"
        declared = json.dumps(self.declared, sort_keys=True)
        yield f"declares   {printable(declared[:_MAX_DECLARED_CHARS])}"
        for kind, obstacle in self.obstacles.items():
            yield f"{kind:<10} {f'no: {obstacle}' if obstacle else 'yes'}"
        yield f"asked      {self.asked_how}"
        yield from self._known_lines()
        if self.trial is not None:
            yield f"tried      {self.trial}"

    def _known_lines(self) -> Iterator[str]:
        known = self.known
        if known is None:
            yield "known      no facts about a client with this name and version"
            return
        facts = [f"{kind} {getattr(known, kind)}" for kind in KINDS if getattr(known, kind) is not Support.UNKNOWN]
        versions = f" {known.versions}" if known.versions else ""
        yield f"known      {known.title}{versions}: {', '.join(facts) or 'nothing about its questions'}"
        if (age := known.age_days(self.today)) is not None:
            warning = ", so it may no longer be true; what the client declares decides" if age > STALE_DAYS else ""
            yield f"           As of {known.as_of}, {age} day{'' if age == 1 else 's'} ago{warning}."
        if known.max_rounds is not None:
            yield f"           It gives up a call after {known.max_rounds} rounds of questions."
        for quirk in sorted(known.quirks):
            yield f"           {quirk.meaning}"
        if known.note:
            yield f"           {known.note}"
        for source in known.sources:
            yield f"           {source.date}: {source.says} ({source.url})"

    def as_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        known, trial = self.known, self.trial
        return {
            "name": self.name[:_MAX_NAME_CHARS],
            "version": self.version[:_MAX_NAME_CHARS],
            "protocol": self.revision,
            "declared": self.declared,
            "asked": self.asked_how,
            "can_be_asked": {kind: not obstacle for kind, obstacle in self.obstacles.items()},
            "known_as": None if known is None else known.title,
            "known_as_of": None if known is None or known.as_of is None else known.as_of.isoformat(),
            "quirks": [] if known is None else sorted(known.quirks),
            "max_rounds": None if known is None else known.max_rounds,
            "trial": None if trial is None else {"answer": trial.answer, "seconds": round(trial.seconds, 3)},
        }


def client_report(request: ServerRequestContext[Any, Any]) -> ClientReport:
    """Return what is known about the client that sent a request."""
    params = request.session.client_params
    name, version = (params.client_info.name, params.client_info.version) if params is not None else ("", "")
    capabilities: ClientCapabilities = request.session.client_capabilities or ClientCapabilities()
    return ClientReport(
        name=name,
        version=version,
        revision=request.protocol_version,
        declared=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
        obstacles=_obstacles(request, capabilities),
        known=known_client(name, version),
        renders_forms=renders_forms(capabilities),
    )


def _obstacles(request: ServerRequestContext[Any, Any], capabilities: ClientCapabilities) -> dict[str, str]:
    is_retry = is_retry_era(request.protocol_version)
    is_reachable = is_retry or RequestClient(request).can_be_asked_live
    obstacles = dict.fromkeys(_PROBES, "" if is_reachable else "its connection cannot carry questions")
    for kind, marker in _PROBES.items():
        try:
            question_of(marker).require(kind, capabilities)
        except CapabilityMissing as missing:
            obstacles[kind] = f"it did not declare {missing.capability}"
    if not is_retry:
        obstacles["tasks"] = f"its revision is older than {FIRST_OF_RETRY_ERA}"
    else:
        obstacles["tasks"] = "" if declares_tasks(request) else f"it did not declare the extension {EXTENSION}"
    obstacles["apps"] = "" if shows_apps(capabilities) else f"it did not declare the extension {UI_EXTENSION}"
    return obstacles
