"""Networks that deliver every leg, but sometimes twice, late, or to another instance or build."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio

from roundtrip.adapters.finding import attached
from roundtrip.client.legs import LegRequest
from roundtrip.testing.apps import state_in
from roundtrip.testing.networks.deliveries import Breach, LegDelivery
from roundtrip.testing.networks.fleet import KEYS, Make
from roundtrip.testing.networks.network import Route
from roundtrip.testing.question_pages import pages_among, waiting_call

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_SAME_KEYS: Final = (
    "do all instances have the same keys? A function that makes a roundtrip server can take keys=; the SDK's MCPServer "
    "has request_state_security=RequestStateSecurity(keys=...)"
)

_ONE_LEDGER: Final = (
    "exactly_once= and once_per= need one ledger for all instances: partial(make_server, ledger=ledger)"
)


class _InstanceSwitch:
    """A network that may switch instances before a leg. The new instance must continue the call."""

    name: str
    _subject: str
    _hint = _SAME_KEYS

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Switch instances, and send the leg."""
        await self._switch(leg, route)
        delivery = await route.onward(leg)
        if delivery.leg.continues and delivery.error is not None:
            raise Breach(f"{self._subject} did not continue the call: {delivery.told}; {self._hint}")
        return delivery

    async def _switch(self, leg: LegRequest, route: Route) -> None:
        raise NotImplementedError


class Hop(_InstanceSwitch):
    """A network that sends each leg to another instance. With a server factory, two instances alternate."""

    name = "hop"
    _subject = "another instance"

    async def _switch(self, leg: LegRequest, route: Route) -> None:
        if route.number > 1:
            await route.fleet.go_to(route.fleet.instances.after(route.fleet.at))


class Restart(_InstanceSwitch):
    """A network that restarts the server between two legs, so that the server loses its memory."""

    name = "restart"
    _subject = "the restarted server"

    async def _switch(self, leg: LegRequest, route: Route) -> None:
        if route.number > 1:
            await route.fleet.go_to(route.fleet.instances.make("a restart"))


class Rotate(_InstanceSwitch):
    """A network that rotates keys. Each leg is one phase: `[old, new]`, `[new, old]`, `[new]`, and so on.

    If the server stores calls, it keeps its old keys, which are needed until `roundtrip calls rekey` has run. Instances
    from all phases run the stored calls, so each instance must be able to read what the others write.
    """

    name = "rotate"
    _subject = "a server whose keys were rotated"
    _hint = "does it verify with each of its keys=, and sign with the first?"

    async def _switch(self, leg: LegRequest, route: Route) -> None:
        past = route.history(leg)
        if past or not leg.continues:
            rotation, phase = divmod(len(past), 3)
            old, new = (KEYS[(rotation + one) % len(KEYS)] for one in (0, 1))
            keys = ((old, new), (new, old), (new,))[phase]
            ours = attached(route.fleet.at)
            if ours is not None and ours.call_service is not None:
                keys = tuple(reversed(KEYS[: rotation + 2]))
            await route.fleet.go_to(route.fleet.instances.make("other keys", keys=keys))


class Deploy(_InstanceSwitch):
    """A network that sends all legs after the first to another build.

    Args:
        make: A function that makes an instance of that build, with the same keys.
        rolling: Alternate between the old build and the new one, as during a rolling deploy.
    """

    _subject = "the other build"

    def __init__(self, make: Make, *, rolling: bool = False) -> None:
        self._make = make
        self._rolling = rolling
        self.name = "deploy-rolling" if rolling else "deploy"

    async def _switch(self, leg: LegRequest, route: Route) -> None:
        past = len(route.history(leg))
        if past and (past % 2 or not self._rolling):
            await route.fleet.deploy(self._make)
        elif past or not leg.continues:
            await route.fleet.go_to(route.fleet.instances.first())


class Duplicate:
    """A network that delivers every leg twice, sequentially or concurrently, and compares the responses.

    The tool's body then runs twice. The network cannot count the body's effects; the test must count them.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self.name = "duplicate-at-once" if at_once else "duplicate"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg twice, and compare the responses."""
        deliveries: list[LegDelivery] = []
        failures: list[Exception] = []

        async def deliver() -> None:
            try:
                deliveries.append(await route.onward(leg))
            except Exception as error:  # noqa: BLE001  # raised here, it would arrive in an exception group
                failures.append(error)

        if self._at_once:
            async with anyio.create_task_group() as group:
                group.start_soon(deliver)
                group.start_soon(deliver)
        else:
            await deliver()
            await deliver()
        if failures:
            raise failures[0]
        _require_agreement(deliveries, "a leg was delivered twice", route)
        return min(deliveries, key=lambda delivery: delivery.result is None)


class Drop:
    """A network that loses the server's response to a leg. The client then sends the leg again.

    Args:
        leg: The number of the leg, starting at 1. By default, the network loses the response to every leg once.
    """

    def __init__(self, leg: int | None = None) -> None:
        self._leg = leg
        self.name = "drop" if leg is None else f"drop-leg-{leg}"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg, lose the response, and send the leg again."""
        lost = await route.onward(leg)
        if self._leg not in (None, len(route.history(leg)) + 1):
            return lost
        again = await route.onward(leg)
        if not lost.crashed:
            _require_agreement([lost, again], "the response to a leg was lost, so it was sent again", route)
        return again


class BeginAgain:
    """A network whose client begins again for each answer, as LangGraph does.

    Before each leg with answers, the client sends the call's first request again, and gives its earlier answers again,
    in the same order. It does so only for tools with `once_per=`, on roundtrip servers in this process. For all other
    tools, each first request would be a new call.
    """

    name = "begin-again"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the call's first request and earlier answers, and then the leg's answers."""
        begun: dict[str | None, list[LegRequest]] = route.notes.setdefault("begun", {})
        if leg.continues and leg.state not in begun:
            # The tool has no `once_per=`, the leg answers a task, or another network repeats this network's own leg.
            return await route.onward(leg)
        first, *earlier = begun.get(leg.state, [leg])
        rounds = [*earlier, leg] if leg.continues else []
        delivery = await route.onward(first)
        for number, one in enumerate(rounds, 1):
            asks, answers = delivery.asks, one.answers or {}
            if asks is None:
                return delivery
            if answers and not answers.keys() & delivery.names:
                raise Breach(
                    f"a client began again, and in round {number}, the server answered with {delivery.told}; it must "
                    f"ask {', '.join(map(repr, answers))}, because such a client gives its earlier answers in order"
                )
            delivery = await route.onward(first.answering(asks, one.answers))
        if delivery.asks is not None and delivery.has_intent:
            begun[delivery.asks.request_state] = [first, *rounds]
        return delivery


class Reorder:
    """A network that reorders a leg's answers. After each leg, it delivers the previous leg again."""

    name = "reorder"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg, and then the previous leg."""
        answers = dict(reversed(list(leg.answers.items()))) if leg.answers is not None else None
        delivery = await route.onward(replace(leg, answers=answers))
        before = route.before(leg)
        if before is not None:
            late = await route.onward(before.leg)
            if late.crashed:
                raise Breach(f"a leg arrived a second time, and the server answered with {late.told}")
            # A task or stored call continues in the background. If a leg arrives late, it may receive the call's
            # result.
            is_background = late.task_id is not None or _is_stored(before, route) or _is_stored(delivery, route)
            # With `once_per=`, every request gets the result once the call has ended.
            is_background = is_background or (late.has_intent and delivery.final is not None)
            if late.done is not None and not is_background:
                raise Breach(f"a leg asked a question, but the call ended when the leg was sent again: {late.told}")
        return delivery


def _require_agreement(deliveries: Sequence[LegDelivery], what: str, route: Route) -> None:
    first, second = deliveries
    for one in deliveries:
        if one.crashed:
            raise Breach(f"{what}, and the server answered with {one.told}")
    if first.result is None or second.result is None:
        return
    if all(state_in(one.result) is not None for one in deliveries):
        # An app sent both requests. The call may have continued between them, and takes one answer per round.
        return
    if _is_stored(first, route) != _is_stored(second, route):
        # The call continued in the background, and one of the two legs received its result.
        return
    waiting = [waiting_call(one.result) for one in deliveries]
    if None not in waiting and len({one.handle for one in waiting if one is not None}) == 1:
        # The call was still waiting when the first leg arrived. It may have continued before the second leg arrived.
        return
    summary = f"{what}, and the server answered with {first.told} and with {second.told}"
    if (first.final is None) != (second.final is None) or first.names != second.names:
        raise Breach(summary)
    finals = [
        one.final.model_dump(mode="json", by_alias=True, exclude={"meta"})
        for one in deliveries
        if one.final is not None
    ]
    if finals and finals[0] != finals[1]:
        server = attached(route.fleet.at)
        runs_once = server is not None and server.identity().exactly_once
        advice = _ONE_LEDGER if runs_once else "exactly_once=True prevents this"
        raise Breach(f"{summary}; the body has probably run twice, with all its effects; {advice}")


def _is_stored(delivery: LegDelivery, route: Route) -> bool:
    """Return True if the call is in the server's store, because it waits on a question page or for an approval."""
    return waiting_call(delivery.result) is not None or bool(pages_among(delivery.asks, route.fleet.at))
