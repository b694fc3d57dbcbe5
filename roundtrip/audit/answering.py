"""Attacks that omit answers, that send unrequested, early, malformed, invalid or oversized ones, or that declare too
few capabilities.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from roundtrip.audit.messages import ABSENT, FULL, NONE, Ending, WireLeg, on_wire
from roundtrip.audit.sessions import AuditedCall, AuditedTool, AuditSession, Reaction, reaction_to
from roundtrip.audit.watching import parse_question
from roundtrip.client.failures import CallFailed
from roundtrip.testing.attacks.answers import NOT_ASKED, UNASKED_ANSWER, invalid_responses
from roundtrip.untrusted import mapping_of

_MAX_KEYS: Final = 4
"""Maximum number of questions to attack in one round."""
_MALFORMED: Final[tuple[tuple[str, Any], ...]] = (
    ("a list", []),
    ("a text", "accept"),
    ("a number", 1),
)
_MALFORMED_ANSWERS: Final[tuple[tuple[str, Any], ...]] = (
    ("null", None),
    ("a text", "accept"),
    ("a list", ["accept"]),
    ("an object without an action", {"content": {"value": 1}}),
    ("an unknown action", {"action": "roundtrip-audit"}),
    ("a text as content", {"action": "accept", "content": "roundtrip-audit"}),
)


class _DifferentQuestions(Exception):
    """Two equal calls got different questions, so an attack cannot reach the same leg as the honest call."""


class AnswerAttacks:
    """The attacks that change the answers in one tool's calls.

    Args:
        session: The session.
        tool: The tool.
        honest: An honest call to the tool.
    """

    def __init__(self, session: AuditSession, tool: AuditedTool, honest: AuditedCall) -> None:
        self._session = session
        self._notes = session.notes[tool.name]
        self._tool = tool
        self._honest = honest

    async def run(self) -> None:
        """Attack the answers in each round."""
        attacks = (self._missing, self._unknown, self._early, self._malformed, self._invalid, self._oversized)
        for number in self._honest.asked:
            index = number + 1
            if index < len(self._honest.legs) and self._honest.responses[number].questions:
                for attack in attacks:
                    with suppress(_DifferentQuestions):
                        await attack(index)
                await self._session.is_alive()
        await self._stateless()
        if await self._serves_after_abandoned_calls():
            with suppress(_DifferentQuestions):
                await self._incapable()

    async def _leg(self, index: int) -> WireLeg:
        """Play a new call up to a leg, and return that leg without sending it.

        Raises:
            _DifferentQuestions: The new call's questions differ from the honest call's.
        """
        leg = await self._session.unsent_leg(self._tool, self._honest, index)
        if leg is None:
            self._notes.untried("S7.missing", "equal calls get different questions")
            raise _DifferentQuestions
        return leg

    async def _try(self, leg: WireLeg, index: int, description: str) -> Reaction:
        response = await self._session.call(leg)
        crashed = response.ending is Ending.CRASHED
        self._notes.require(not crashed, "A5", f"{description} was answered with {response.summary}")
        return reaction_to(response, self._honest, index)

    async def _missing(self, index: int) -> None:
        for key in list(self._honest.responses[index - 1].questions)[:_MAX_KEYS]:
            leg = await self._leg(index)
            kept = {name: answer for name, answer in leg.answers.items() if name != key}
            reaction = await self._try(replace(leg, answers=kept), index, f"a missing answer to {key!r}")
            response = reaction.response
            asked = reaction.asked_again and key in response.questions
            text = f"a request without the answer to {key!r} was answered with {response.summary}"
            self._notes.require(asked, "S7.missing", text)
            if not asked:
                continue
            try:
                answers = self._session.answers(self._tool.name, response.questions)
            except CallFailed:
                continue
            again = await self._session.call(leg.answering(response, answers))
            continued = reaction_to(again, self._honest, index).continued
            text = f"the request with the missing answer to {key!r} was answered with {again.summary}"
            self._notes.require(continued, "S7.goes-on", text)

    async def _unknown(self, index: int) -> None:
        leg = await self._leg(index)
        description = "an answer to an unknown question"
        extra = replace(leg, answers={**leg.answers, NOT_ASKED: on_wire(UNASKED_ANSWER)})
        reaction = await self._try(extra, index, description)
        text = f"a request with {description} was answered with {reaction.response.summary}"
        honest = self._honest.responses[index]
        ignored = reaction.continued or reaction.response.ending is honest.ending
        self._notes.require(ignored, "S8.unknown", text)

    async def _early(self, index: int) -> None:
        """Send a later round's answers too early: first instead of the expected answers, then together with them."""
        asked = self._honest.responses[index - 1].questions
        later = {key: answer for key, answer in self._honest.answers(index + 1).items() if key not in asked}
        if not later or not self._honest.responses[index].questions:
            return
        description = "answers to questions of a later round"
        if not self._notes.has_failed("S7.missing"):
            leg = await self._leg(index)
            reaction = await self._try(replace(leg, answers=later), index, description)
            text = f"answers to {_names(later)} were sent before the questions, instead of the expected answers"
            self._require_ignored(reaction.continued, reaction, text)
        leg = await self._leg(index)
        both = replace(leg, answers={**leg.answers, **later})
        reaction = await self._try(both, index, description)
        expected = set(self._honest.responses[index].questions)
        skipped_questions = reaction.continued and not expected <= set(reaction.response.questions)
        self._require_ignored(skipped_questions, reaction, f"answers to {_names(later)} were sent before the questions")

    def _require_ignored(self, taken: bool, reaction: Reaction, text: str) -> None:
        self._notes.require(not taken, "S8.early", f"{text}: {reaction.response.summary}")

    async def _malformed(self, index: int) -> None:
        leg = await self._leg(index)
        key = next(iter(leg.answers))
        malformed: dict[str, Any] = {f"{kind} instead of answers": answers for kind, answers in _MALFORMED}
        for description, answer in _MALFORMED_ANSWERS:
            malformed[f"{description} as the answer to {key!r}"] = {**leg.answers, key: answer}
        for description, answers in malformed.items():
            reaction = await self._try(replace(leg, answers=answers), index, description)
            # A result with `isError` is not a JSON-RPC error.
            is_error = reaction.response.error is not None or reaction.response.ending is Ending.REJECTED
            text = f"{description} was answered with {reaction.response.summary}"
            self._notes.require(is_error or reaction.asked_again, "S9.malformed", text)
        await self._require_control("S9.malformed", leg, index)

    async def _invalid(self, index: int) -> None:
        questions = self._honest.responses[index - 1].questions
        for key in list(questions)[:_MAX_KEYS]:
            question = parse_question(questions[key])
            if question is None:
                continue
            try:
                invalid = list(invalid_responses(question))
            except ValueError as error:
                self._notes.untried("S9.content", f"the audit cannot fill in the form of {key!r}: {error}")
                continue
            leg = await self._leg(index)
            for description, answer in invalid:
                changed = replace(leg, answers={**leg.answers, key: on_wire(answer)})
                reaction = await self._try(changed, index, f"the answer to {key!r} ({description})")
                text = f"an answer to {key!r} ({description}) was answered with {reaction.response.summary}"
                self._notes.require(not reaction.continued, "S9.content", text)
            await self._require_control("S9.content", leg, index)

    async def _require_control(self, clause: str, leg: WireLeg, index: int) -> None:
        """Send the honest leg after the bad legs. If the server also rejects the honest leg, its reactions to the bad
        legs prove nothing.
        """
        control = await self._session.call(leg)
        if not reaction_to(control, self._honest, index).continued and control.ending is not self._honest.last.ending:
            reason = f"after the attacks, even the honest request was answered with {control.summary}"
            self._notes.withdraw(clause, reason)

    async def _oversized(self, index: int) -> None:
        leg = await self._leg(index)
        filler = "x" * self._session.limits.body_bytes
        key = next(iter(leg.answers))
        oversized = {
            "an answer": replace(leg, answers={**leg.answers, key: {"action": "accept", "content": {"value": filler}}}),
            "an unasked answer": replace(leg, answers={**leg.answers, NOT_ASKED: {"action": filler}}),
            "a state": replace(leg, state=filler),
        }
        for description, changed in oversized.items():
            response = await self._session.call(changed)
            size = f"{self._session.limits.body_bytes // 2**20} MiB"
            text = f"{description} of {size} was answered with {response.summary}"
            # A server may reject a body by closing the connection before it has read the whole body.
            answered = response.ending is not Ending.CRASHED or response.is_cut
            self._notes.require(answered and await self._session.is_alive(), "A3", text)

    async def _stateless(self) -> None:
        """Send all answers in a call's first request, without a request state."""
        answers = self._honest.answers()
        if not self._honest.states or not answers:
            return
        leg = WireLeg(self._tool.name, self._tool.arguments, answers, ABSENT)
        response = await self._session.call(leg)
        if response.ending is Ending.DONE:
            text = "the server accepted answers without a state, so it did not check which call they belong to"
            self._notes.fact("S8.stateless", text)
        else:
            self._notes.passed("S8.stateless")

    async def _incapable(self) -> None:
        """Call the tool as a client without any capabilities. Then call it as clients that have only one capability
        each.
        """
        if not any(self._honest.responses[number].questions for number in self._honest.asked):
            return
        call = await self._session.play(self._tool, until=0, capabilities=NONE)
        if call.last.error is not None or call.last.ending in (Ending.FAILED, Ending.CRASHED):
            error = call.last.error or {}
            named = "requiredCapabilities" in mapping_of(error.get("data"))
            text = f"a client without capabilities was answered with {call.last.summary}"
            is_right = error.get("code") == MISSING_REQUIRED_CLIENT_CAPABILITY and named
            self._notes.require(is_right, "S6.error", text)
        elif call.last.ending is Ending.DONE:
            self._notes.passed("S6.error")
        else:
            self._notes.untried("S6.error", "the server asks questions that need undeclared capabilities")
        for kind in FULL:
            await self._session.play(self._tool, until=0, capabilities={kind: {}})
        leg = await self._leg(self._honest.asked[0] + 1)
        if len(self._honest.asked) > 1:
            # This leg declares no capabilities. The server must not use those that an earlier request declared.
            await self._session.call(leg, capabilities=NONE)

    async def _serves_after_abandoned_calls(self) -> bool:
        """Play a complete call, to check that the abandoned calls did no harm. Return True if this call ends as the
        honest call did.
        """
        if not self._honest.asked:
            return True
        call = await self._session.play(self._tool)
        as_before = call.last.ending is self._honest.last.ending
        text = f"after abandoned calls, an honest call ended with {call.last.summary}"
        self._notes.require(as_before, "S10", text)
        return as_before


def _names(answers: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, answers))
