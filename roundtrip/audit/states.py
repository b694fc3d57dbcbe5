"""Attacks with bad request states: tampered, forged, invented or expired ones, or ones from another request or user."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from roundtrip.audit.messages import ABSENT, Ending, WireLeg, WireResponse
from roundtrip.audit.sessions import AuditedCall, AuditedTool, AuditSession, Reaction, reaction_to
from roundtrip.testing.attacks.reading import readable_in, texts_in
from roundtrip.testing.attacks.requests import other_arguments
from roundtrip.testing.attacks.states import forged, tampered, truncated

_MAX_STATES: Final = 3
"""Maximum number of states to attack in one call."""
_MAX_ARGUMENTS: Final = 6
_MIN_READABLE_CHARS: Final = 4
_VERIFIED: Final = ("S4.tampered", "S4.truncated", "S4.forged", "S4.invented")
_BOUND: Final = ("S5.principal", "S5.tool", "S5.arguments")
_INVENTED_TEXT: Final = "roundtrip-audit"
_INVENTED: Final[tuple[tuple[str, Any], ...]] = (
    ("an empty text", ""),
    ("an invented text", _INVENTED_TEXT),
    ("invented JSON", '{"step": 99}'),
    ("a number", 7),
    ("an object", {"step": 99}),
    ("a list", ["roundtrip-audit"]),
)


class StateAttacks:
    """The attacks that change the states in one tool's calls.

    Args:
        session: The session.
        tool: The tool.
        calls: Maps each named tool to an honest call.
    """

    def __init__(self, session: AuditSession, tool: AuditedTool, calls: Mapping[str, AuditedCall]) -> None:
        self._session = session
        self._notes = session.notes[tool.name]
        self._tool = tool
        self._honest = calls[tool.name]
        self._others = [call for name, call in calls.items() if name != tool.name]
        self._rejects = False
        self._rejection = ""
        self._rejections: dict[str, str] = {}
        """Maps each rejection to a bad state that caused it."""
        self._stale: tuple[WireLeg, int, float] | None = None
        """A leg that has not been sent, its index, and the time when its state arrived. The leg is sent when its state
        should have expired.
        """

    async def run(self, *, is_once: bool) -> None:
        """Attack each state in the call. Then repeat the call's last request."""
        indexes = list(self._state_indexes())
        for index in indexes[:_MAX_STATES]:
            await self._attack(index)
        if self._rejections:
            examples = "; ".join(f"{description}: {rejection}" for rejection, description in self._rejections.items())
            text = f"the server rejects bad states in different ways, which helps an attacker: {examples}"
            self._notes.require(len(self._rejections) == 1, "A1", text)
        if indexes and self._honest.last.ending is Ending.DONE:
            await self._replay(is_once=is_once)

    def _state_indexes(self) -> Iterator[int]:
        """Yield the indexes of the legs that send a state."""
        for number in self._honest.asked:
            state = self._honest.responses[number].state
            if isinstance(state, str) and state and number + 1 < len(self._honest.legs):
                yield number + 1

    async def _unsent(self, index: int) -> WireLeg | None:
        leg = await self._session.unsent_leg(self._tool, self._honest, index)
        return leg if leg is not None and isinstance(leg.state, str) and leg.state else None

    async def keep_stale(self) -> None:
        """Prepare a leg, and keep it until its state should have expired."""
        for index in self._state_indexes():
            if (leg := await self._unsent(index)) is not None:
                self._stale = leg, index, anyio.current_time()
                return

    async def send_stale(self, *, seconds: float) -> None:
        """Send the kept leg, if any, when its state should have expired."""
        if self._stale is None:
            return
        leg, index, sent_at = self._stale
        await self._session.wait(max(0.0, sent_at + seconds - anyio.current_time()))
        age = anyio.current_time() - sent_at
        reaction = await self._try(leg, index)
        text = f"a state was accepted {age:.1f} s after the server sent it: {reaction.response.summary}"
        self._notes.require(not self._is_accepted(reaction), "S5.expiry", text)

    async def _attack(self, index: int) -> None:
        leg = await self._unsent(index)
        if leg is None:
            for clause in (*_VERIFIED, *_BOUND):
                self._notes.untried(clause, "equal calls get different questions")
            return
        state = str(leg.state)
        # If the server rejects an invented state but answers another bad state with questions, it has accepted that
        # other state.
        invented = await self._try(replace(leg, state=_INVENTED_TEXT), index)
        self._rejects = invented.response.ending is Ending.REJECTED
        self._rejection = invented.response.rejection
        accepted: list[tuple[str, str, WireResponse]] = []
        for clause, description, bad in _bad_states(state):
            reaction = await self._try(replace(leg, state=bad), index, compare=isinstance(bad, str))
            text = f"a state with {description} was answered with {reaction.response.summary}"
            if clause == "S4.invented":
                text = f"{description} as the state was answered with {reaction.response.summary}"
            if self._is_accepted(reaction):
                accepted.append((clause, text, reaction.response))
            else:
                self._notes.passed(clause)
        if not list(forged(state)):
            self._notes.untried("S4.forged", "the state is not JSON, so its values cannot be rewritten")
        await self._try_elsewhere(leg, index)
        control = await self._session.call(leg)
        if accepted:
            without = (await self._try(replace(leg, state=ABSENT), index, compare=False)).response
            for clause, text, response in accepted:
                if response.result == control.result == without.result:
                    text = "the result is the same with any state or without one, so tampering changes nothing"
                    self._notes.fact(clause, text)
                else:
                    self._notes.failed(clause, text)
        if not reaction_to(control, self._honest, index).continued:
            reason = f"after the attacks, even the honest request was answered with {control.summary}"
            for clause in (*_VERIFIED, *_BOUND):
                self._notes.withdraw(clause, reason)
        await self._session.is_alive()

    async def _try_elsewhere(self, leg: WireLeg, index: int) -> None:
        """Send the state with other arguments, then to another tool, and then as another user."""
        name = self._tool.name
        arguments = list(other_arguments(leg.arguments, self._session.schemas.get(name, {})))
        for argument, values in arguments[:_MAX_ARGUMENTS]:
            for value in values:
                changed = replace(leg, arguments={**leg.arguments, argument: value})
                reaction = await self._try(changed, index, compare=False)
                if self._judge_bound("S5.arguments", reaction, f"a state was sent with another {argument!r}"):
                    break
        if not arguments:
            self._notes.untried("S5.arguments", "the tool has no arguments")
        others = [one for one in self._others if one.states]
        for other in others:
            changed = replace(leg, name=other.legs[0].name, arguments=other.legs[0].arguments)
            reaction = await self._try(changed, index, honest=other, compare=False)
            self._judge_bound("S5.tool", reaction, f"the state of {name!r} was sent to {changed.name!r}")
        if not others:
            self._notes.untried("S5.tool", "the test needs a second --tool that sends a state")
        await self._try_as_other_user(leg, index)

    async def _try_as_other_user(self, leg: WireLeg, index: int) -> None:
        if not self._session.has_other:
            self._notes.untried("S5.principal", "the test needs --other-header with another user's credentials")
            return
        first = await self._session.call(self._honest.legs[0], is_other=True)
        if first.ending is not Ending.ASKED:
            reason = f"the other user cannot start a call: it was answered with {first.summary}"
            self._notes.untried("S5.principal", reason)
            return
        reaction = await self._try(leg, index, is_other=True, compare=False)
        self._judge_bound("S5.principal", reaction, "a user's state was sent by another user")

    def _judge_bound(self, clause: str, reaction: Reaction, text: str) -> bool:
        """Record whether the server rejected the state. Return False if it may have rejected the request for another
        reason.
        """
        response = reaction.response
        if self._is_accepted(reaction):
            self._notes.failed(clause, f"{text}; the response was {response.summary}")
        elif response.ending is Ending.ASKED or self._is_state_rejection(response):
            if response.ending is Ending.REJECTED:
                self._rejections.setdefault(response.rejection, text)
            self._notes.passed(clause)
        else:
            reason = f"{text}; the response was {response.summary}, which may have another reason"
            self._notes.untried(clause, reason)
            return False
        return True

    def _is_state_rejection(self, response: WireResponse) -> bool:
        """Return True if the response seems to reject the state."""
        return response.rejection == self._rejection or "state" in response.rejection.lower()

    async def _try(
        self,
        leg: WireLeg,
        index: int,
        *,
        honest: AuditedCall | None = None,
        is_other: bool = False,
        compare: bool = True,
    ) -> Reaction:
        """Send a leg with a bad state, and record how the server rejects it."""
        response = await self._session.call(leg, is_other=is_other)
        if honest is None:
            reaction = reaction_to(response, self._honest, index)
        else:
            # If a state belongs to another tool, the server may start a new call, but must not continue the other
            # tool's call.
            began = (
                response.ending is Ending.ASKED and response.questions.keys() == honest.responses[0].questions.keys()
            )
            continued = response.ending in (Ending.ASKED, Ending.DONE, Ending.TASK) and not began
            reaction = Reaction(response, continued=continued, asked_again=False)
        crashed = f"a bad state was answered with {response.summary}"
        self._notes.require(response.ending is not Ending.CRASHED, "A5", crashed)
        if compare and response.ending is Ending.REJECTED:
            self._rejections.setdefault(response.rejection, f"state {str(leg.state)[:24]!r}")
        return reaction

    def _is_accepted(self, reaction: Reaction) -> bool:
        return reaction.continued or (self._rejects and reaction.response.ending is Ending.ASKED)

    async def _replay(self, *, is_once: bool) -> None:
        """Repeat a call's last leg. If `is_once` is True, also take a second call, and send its last leg twice at the
        same time.
        """
        index = len(self._honest.legs) - 1
        leg = await self._unsent(index)
        if leg is None:
            return
        answered = [await self._session.call(leg) for _ in range(2)]
        if not is_once:
            manner = "was rejected" if answered[1].ending is not Ending.DONE else "was accepted"
            same = answered[0].result == answered[1].result
            result_text = "" if manner == "was rejected" else f", with {'an equal' if same else 'another'} result"
            self._notes.fact("S5.replay", f"a repeated last request {manner}{result_text}")
            self._notes.untried("S5.once", "--once did not name the tool")
            return
        self._judge_once(answered, "in sequence")
        if (leg := await self._unsent(index)) is not None:
            self._judge_once(await asyncio.gather(*(self._session.call(leg) for _ in range(2))), "concurrently")

    def _judge_once(self, answered: Sequence[WireResponse], manner: str) -> None:
        done = [one.result for one in answered if one.ending is Ending.DONE]
        texts = " and ".join(one.summary for one in answered)
        if not done or any(result != done[0] for result in done):
            self._notes.failed("S5.once", f"the same last request, sent twice {manner}, was answered with {texts}")
        elif len(done) == 2 and done[0] == self._honest.last.result:
            # Another call with the same answers also returned this result, so equal results do not show that the tool
            # acted only once.
            text = "a repeated last request got an equal result, as equal calls do, so a second action would not show"
            self._notes.fact("S5.once", text)
        else:
            self._notes.passed("S5.once")

    def read(self, secrets: Iterable[str]) -> None:
        """Try to read the honest call's states without a key."""
        secrets = tuple(secrets)
        for state in self._honest.states:
            for secret in readable_in(state, secrets):
                self._notes.failed("P1", f"a state can be read without a key, and contains {secret!r}")
            if secrets:
                self._notes.passed("P1")
            kinds = {
                text: kind
                for kind, values in (
                    ("argument", self._tool.arguments),
                    ("answer", [answer.get("content") for answer in self._honest.answers().values()]),
                )
                for text in texts_in(values)
                if len(text) >= _MIN_READABLE_CHARS
            }
            found = readable_in(state, kinds)
            for text in found:
                self._notes.fact("A4", f"a state can be read without a key, and contains the {kinds[text]} {text!r}")
            if not found and list(forged(state)):
                self._notes.fact("A4", "a state can be read as JSON without a key")
            elif not found:
                self._notes.passed("A4")


def _bad_states(state: str) -> Iterator[tuple[str, str, Any]]:
    """Yield bad states. Each comes with a description, and with the clause that it tests."""
    short = dict(truncated(state))
    for description, bad in tampered(state):
        yield ("S4.truncated" if description in short else "S4.tampered"), description, bad
    for description, bad in forged(state):
        yield "S4.forged", description, bad
    for description, bad in _INVENTED:
        yield "S4.invented", description, bad
