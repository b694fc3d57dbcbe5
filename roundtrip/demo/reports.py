"""What an instance reports on its standard output, one JSON object a line, and how the demo reads it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from roundtrip.machine.call import Transition
from roundtrip.machine.table import CALL_MACHINE, Event, State

__all__ = ["Change", "Ready", "Report", "change_of", "read_report"]


class Ready(BaseModel):
    """The instance takes requests."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["ready"] = "ready"
    pid: int
    port: int


class Change(BaseModel):
    """A call changed its state in the instance."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["change"] = "change"
    pid: int
    leg: int
    source: State
    event: Event
    target: State
    keys: tuple[str, ...] = ()
    """The questions that it asks."""
    reasons: dict[str, str] = {}
    """Why each of them is asked."""
    remark: str | None = None
    """Why the call ended as it did, where its state does not say."""

    @property
    def ends_leg(self) -> bool:
        """Whether nothing more happens to the call in this leg."""
        return self.target is State.AWAITING_INPUT or self.target in CALL_MACHINE.final


Report = Ready | Change

_REPORT: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


def change_of(step: Transition, *, pid: int) -> Change:
    """The report of a step that a server's `trace` was told of."""
    detail = step.detail
    return Change(
        pid=pid,
        leg=step.leg,
        source=step.source,
        event=step.event,
        target=step.target,
        keys=detail.get("keys", ()),
        reasons=detail.get("reasons", {}),
        remark=detail.get("reason") or detail.get("error"),
    )


def read_report(line: str) -> Report:
    """The report on one line.

    Raises:
        ValueError: It is none.
    """
    return _REPORT.validate_json(line)
