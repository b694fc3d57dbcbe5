"""`confirm=`: a dangerous tool asks before anything runs, and shows its arguments."""

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Event, InvalidSignature, Resolve, Server, State
from roundtrip.testing import DECLINE, Era, LegByLeg, Restart, Steps, User
from roundtrip.testing.scripts import UserAction
from tests.interaction.bodies.shops import shop
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


CONFIRM = {"confirm": "Delete {path}?"}


class Reason(BaseModel):
    reason: str


class Disk:
    """Lookups and deletions, and a tool that does both behind a confirmation."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def server(self, trace: Steps | None = None) -> Server[Any]:
        async def size(path: str) -> int:
            self.done.append(f"sized {path}")
            return 7

        async def why(size: Annotated[int, Resolve(size)]) -> Elicit[Reason]:
            return Elicit(f"Why delete {size} bytes?", Reason)

        async def body(
            path: str, reason: Annotated[Reason, Resolve(why)], times: Annotated[int, Field(ge=1)] = 1
        ) -> str:
            self.done.append(f"deleted {path}")
            return f"{path} {times}x: {reason.reason}"

        return shop(body, tool=CONFIRM, trace=trace)


async def test_accepted_call_continues_with_its_own_questions(era: Era) -> None:
    disk = Disk()
    made = await User(disk.server(), {"confirm:order": {}, "why": {"reason": "old"}}, era=era).call(
        "order", {"path": "/tmp/a"}
    )
    assert made.text == "/tmp/a 1x: old"
    assert made.asked == [
        'Delete "/tmp/a"?\n\npath: "/tmp/a"\ntimes: 1',
        "Why delete 7 bytes?",
    ]
    assert disk.done[-1] == "deleted /tmp/a"


@pytest.mark.parametrize(("action", "era"), [("decline", Era.RETRY), ("cancel", Era.LIVE)])
async def test_declined_call_ends_before_anything_runs(era: Era, action: str) -> None:
    disk, trace = Disk(), Steps()
    result = await User(disk.server(trace), {"confirm:order": UserAction(action)}, era=era).call(
        "order", {"path": "/tmp/a"}
    )
    assert result.is_error
    assert f"The user {action}" in result.text
    assert disk.done == []
    assert trace.states[-2:] == [State.RESOLVING, State.DECLINED]


async def test_client_that_cannot_be_asked_is_rejected_before_anything_runs(era: Era) -> None:
    """Shows S6."""
    disk, trace = Disk(), Steps()
    with pytest.raises(MCPError) as rejected:
        await User(disk.server(trace), era=era, missing_capabilities=["elicitation"]).call("order", path="/tmp/a")
    assert rejected.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert disk.done == []
    assert trace.events[-1] is Event.REJECT


async def test_a_confirmation_is_good_for_the_arguments_it_showed_only() -> None:
    """Shows S5."""
    disk = Disk()
    hopper = LegByLeg(disk.server)
    await hopper.leg("order", {"path": "/tmp/a"})
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await hopper.leg("order", {"path": "/etc"}, answers={"confirm:order": {}}, state=hopper.token)
    # Without the state the answer belongs to no question.
    await hopper.leg("order", {"path": "/etc"}, answers={"confirm:order": {}})
    assert list(hopper.questions) == ["confirm:order"]
    assert disk.done == []


async def test_a_confirmation_rides_along_and_is_not_asked_again() -> None:
    disk = Disk()
    user = User(disk.server, {"confirm:order": {}, "why": {"reason": "old"}}, network=Restart())
    call = await user.call("order", path="/tmp/a")
    assert call.text == "/tmp/a 1x: old"
    assert [[question.name for question in round_] for round_ in call.rounds] == [["confirm:order"], ["why"]]


async def test_invalid_arguments_are_rejected_before_the_question() -> None:
    disk = Disk()
    call = await User(disk.server(), era=Era.RETRY).call("order", {"path": "/tmp/a", "times": 0})
    assert call.is_error
    assert call.questions == []


async def test_plain_tool_without_questions_can_have_a_confirmation() -> None:
    def body(path: str) -> str:
        return f"deleted {path}"

    server = shop(body, tool=CONFIRM)
    assert (await User(server, {"confirm:order": {}}, era=Era.RETRY).call("order", {"path": "/a"})).text == "deleted /a"
    assert (await User(server, {"confirm:order": DECLINE}, era=Era.RETRY).call("order", {"path": "/a"})).is_error


async def test_arguments_cannot_forge_or_reorder_lines_of_the_confirmation() -> None:
    async def body(path: Path, note: str) -> str:
        return "done"

    user = User(shop(body, tool=CONFIRM), {"confirm:order": {}}, era=Era.RETRY)
    sent = {"path": "/etc\n\npath: /tmp/a", "note": "ok\r\npath: /tmp/b\u2028\u202egnp"}
    made = await user.call("order", sent)
    assert made.asked[0].splitlines() == [
        r'Delete "/etc\n\npath: /tmp/a"?',
        "",
        r'path: "/etc\n\npath: /tmp/a"',
        r'note: "ok\r\npath: /tmp/b\u2028\u202egnp"',
    ]
    template = await user.call("order", {"path": "{path.__class__} {0}", "note": "x" * 2000 + "and all backups"})
    assert template.asked[0].startswith('Delete "{path.__class__} {0}"?')
    assert template.asked[0].endswith('x"... (and 15 more characters)')


class Target(BaseModel):
    host: str
    tags: list[str] = []


FORGED = 'x? It stays.\\" Nothing is deleted. path: "/tmp/a'


async def test_no_argument_forges_a_question_with_folded_lines() -> None:
    async def body(path: str, target: Target, names: list[str]) -> str:
        return "done"

    sent = {"path": FORGED, "target": {"host": FORGED, "tags": [FORGED]}, "names": [FORGED]}
    made = await User(shop(body, tool=CONFIRM), {"confirm:order": {}}, era=Era.RETRY).call("order", sent)
    folded = " ".join(made.asked[0].split())
    # Outside of JSON's own strings there are the words of the server only.
    text = re.compile(r'"(?:[^"\\]|\\.)*"')
    assert text.sub("_", folded) == "Delete _? path: _ target: {_: _, _: [_]} names: [_]"
    assert {json.loads(one) for one in text.findall(folded)} == {FORGED, "host", "tags"}


async def test_values_that_no_client_can_word_stay_unquoted() -> None:
    async def body(path: str, day: date, price: Decimal, force: bool, note: str | None = None) -> str:
        return "done"

    made = await User(
        shop(body, tool={"confirm": "Pay {price:.2f} on {day:%d %B}, {path!r}?"}), {"confirm:order": {}}
    ).call("order", {"path": "a b", "day": "2026-01-02", "price": "12.5", "force": True})
    assert made.asked[0].splitlines() == [
        'Pay 12.50 on 02 January, "a b"?',
        "",
        'path: "a b"',
        "day: 2026-01-02",
        "price: 12.5",
        "force: True",
        "note: None",
    ]


async def _mistake_of(template: str) -> str:
    """Return the error at the registration of a tool with this confirmation."""

    async def order(path: str, ctx: Context[Any, Any]) -> str:
        return "never"

    with pytest.raises(InvalidSignature) as rejected:
        Server("shop", keys=[KEY]).tool(confirm=template)(order)
    return str(rejected.value)


async def test_unfillable_confirmation_template_is_rejected_at_registration() -> None:
    reasons = {
        "Delete {file}?": "mentions 'file', which is not an argument of the tool (its arguments: path)",
        "Delete {path.name}?": "mentions 'path.name'",
        "Delete {}?": "mentions ''",
        "Delete {ctx}?": "mentions 'ctx'",
        "Delete {path?": "is not a format string",
        "Delete path}?": "is not a format string",
    }
    told = {template: await _mistake_of(template) for template in reasons}
    assert all(text.startswith("tool 'order': confirm=") for text in told.values()), told
    assert {template: told[template] for template, why in reasons.items() if why not in told[template]} == {}
