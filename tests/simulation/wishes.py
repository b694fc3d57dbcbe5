"""The promises of tools with `once_per=`: one body, one result, whichever of a user's agents asks for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tests.simulation.agents import OTHERWISE, Agent, Said, Wish
from tests.simulation.clients import text_of
from tests.simulation.fleet import Json
from tests.simulation.shop import Diary, error_of

__all__ = ["judge_wish"]

_ERRORS: Final = (
    ("unknown", "the outcome of this call is unknown"),
    ("answered otherwise", OTHERWISE),
    ("other arguments", "another call with the same intent has other arguments"),
    ("declined", "decline"),
    ("timed out", "timed out"),
    ("expired", "requestState"),
)
_RECEIPTS: Final = ("label", "stamp", "price", "fee", "body")
_RESULT: Final = "result: "
_RECEIPT: Final = re.compile(r"\b(label|stamp)-\w+-of-(order\d+)/(\d+)")


def judge_wish(wish: Wish, diary: Diary, log: Sequence[str], *, is_troubled: bool) -> list[str]:
    """Return the promises that were broken.

    Args:
        wish: An intent, after all its agents have their ends.
        diary: What the tools have done.
        log: What the tools have done for it, and when the store got a step.
        is_troubled: True if a process with its claim had trouble, or the store was out of reach.
    """
    broken = [one for one in wish.broken if not (is_troubled and one.startswith("nag"))]

    def of(what: str) -> int:
        return sum(len(diary.of(f"{wish.order}/{amount}", what)) for amount in wish.amounts)

    is_cut_short = is_troubled or of("stopped") > 0
    if of("body") > 1 and not (wish.tool == "restock" and is_cut_short):
        broken.append(f"the body ran {of('body')} times")
    # A run that was stopped has lost what its resolvers computed.
    broken += [
        f"step {what!r} ran {of(f'{what} done')} times"
        for what in ("label", "stamp", "price", "fee")
        if of(f"{what} done") > 1 and not is_cut_short
    ]
    if len({agent.answers["seats"] for agent in wish.agents}) == 1:
        # Each set of answers has its own steps.
        broken += _judge_log(log)
    broken += _judge_shown(wish)
    ends = [(agent, said, _end_of(said.end)) for agent in wish.agents for said in agent.said]
    results = {end for _, _, end in ends if end.startswith(_RESULT)}
    # A body that may run again does so if its result is lost together with its process.
    if len(results) > 1 and not (wish.tool == "restock" and is_cut_short):
        broken.append(f"there are several results: {sorted(results)}")
    told = min((said.received for _, said, end in ends if end.startswith(_RESULT)), default=float("inf"))
    for agent, said, end in ends:
        if fault := _fault_of(agent, said, end, told, is_cut_short=is_cut_short):
            broken.append(f"{agent.name}, a {agent.habit} one: {fault}")
    return [f"{wish.name}: {one}" for one in broken]


def _judge_log(log: Sequence[str]) -> list[str]:
    """Return the steps that ran again although the store had them."""
    stored = {
        done.removesuffix(" done") for done, noted in pairwise(log) if noted == "noted" and done.endswith(" done")
    }
    for what in stored:
        place = next(at for at, pair in enumerate(pairwise(log)) if pair == (f"{what} done", "noted"))
        if what in log[place:]:
            return [f"step {what!r} ran again, and the store had it"]
    return []


def _judge_shown(wish: Wish) -> list[str]:
    broken: list[str] = []
    shown: dict[str, set[str]] = {"label": set(), "stamp": set()}
    for agent in wish.agents:
        for message in agent.shown:
            for found in _RECEIPT.finditer(message):
                shown[found[1]].add(found[0])
                if found[2] != wish.order or int(found[3]) != agent.amount:
                    broken.append(f"{agent.name} was shown {found[0]}, which is another's")
            if "Refund" in message and f"Refund {agent.amount} " not in message:
                broken.append(f"{agent.name} was asked {message!r}")
    return broken + [f"a step has several results: {sorted(each)}" for each in shown.values() if len(each) > 1]


def _fault_of(agent: Agent, said: Said, end: str, told: float, *, is_cut_short: bool) -> str | None:
    """Return what is wrong with one end of an agent's call; None if nothing is."""
    wish = agent.wish
    if end.startswith(_RESULT):
        return _fault_of_result(agent, said, end.removeprefix(_RESULT))
    if end == "declined":
        if not any(each.has_declined for each in wish.agents):
            return "declined by nobody"
        return "declined after the end" if said.sent > told else None
    if end in ("unknown", "timed out"):
        return None if is_cut_short else f"{end}, and nothing went wrong"
    if end == "answered otherwise":
        return "answered otherwise, by nobody" if wish.is_of_one_mind else None
    if end == "other arguments":
        return "has other arguments than nobody" if len(wish.amounts) < 2 else None
    return f"ended with {end}" if end != "expired" else None


def _fault_of_result(agent: Agent, said: Said, text: str) -> str | None:
    wish, amounts = agent.wish, _numbers(agent)
    for number in amounts:
        if (error := error_of(agent.order, number)) is not None and text == f"failed {error}":
            return _fault_of_answers(said, {"seats": str(number)})
    words = text.split(" ")
    named = ["order", "seats", "amount", "row", "label", "stamp", "body"]
    if wish.tool == "refund":
        named = ["order", "seats", "amount", "price", "fee", "body"]
    elif wish.tool == "charge":
        named = ["order", "amount", "body"]
    if len(words) != len(named):
        return f"ended with {text}"
    values = dict(zip(named, words, strict=True))
    if values["order"] != agent.order or values["amount"] != str(agent.amount):
        return f"got another's result, {text}"
    for name, value in values.items():
        if name in ("label", "stamp", "price", "fee", "body") and not value.endswith(
            f"-of-{agent.order}/{agent.amount}"
        ):
            return f"got another's {name}, {value}"
        if name in ("seats", "row") and value not in {str(each.answers[name]) for each in wish.agents}:
            return f"got a result for a {name} that nobody gave, {value}"
    return _fault_of_answers(said, values)


def _numbers(agent: Agent) -> set[int]:
    """Return the numbers on which a tool's failure depends."""
    return {agent.amount} if agent.tool == "charge" else {each.answers["seats"] for each in agent.wish.agents}


def _fault_of_answers(said: Said, values: dict[str, str]) -> str | None:
    """Return what is wrong with a result for an agent that has given these answers."""
    for name, response in said.given.items():
        value: object = response.get("content", {}).get("value")
        if name in values and value != "several" and str(value) != values[name]:
            return f"gave {value} for {name}, and got the result of {values[name]}"
    return None


def _end_of(end: Json) -> str:
    """Return how a call ended, in a word or as its result."""
    text = text_of(end)
    if not text:
        return f"{_RESULT}{end['result']['content'][0]['text']}"
    for name, part in _ERRORS:
        if part in text:
            return name
    if end.get("result", {}).get("isError"):
        return f"{_RESULT}failed {text.partition(': ')[2]}"
    return text
