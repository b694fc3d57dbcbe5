"""The audit claims only what its responses show."""

import random
from contextlib import suppress
from typing import Any, Final, cast

import pytest

from roundtrip.audit.auditing import AuditFailed
from roundtrip.audit.findings import AuditReport, ClauseVerdict
from roundtrip.audit.sessions import AuditLimits
from tests.interaction.audit.audits import audited, failed, told
from tests.interaction.audit.libraries import of_roundtrip
from tests.interaction.audit.wrong_servers import BindsNoUser, Rejection, RightServer

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


def verdict(report: AuditReport, clause: str, tool: str = "book") -> ClauseVerdict:
    return next(one.verdict for one in report.findings if one.clause.id == clause and one.tool in (tool, None))


async def test_packed_state_is_readable_and_not_rewritten() -> None:
    users = ({"authorization": "Bearer app/ada"}, {"authorization": "Bearer app/eve"})
    report = await audited(of_roundtrip(), "book", lifespan="on", users=users)
    assert told(report, "A4") == ["a state can be read without a key, and contains the answer 'middle'"]
    assert told(report, "S4.forged") == ["the state is not JSON, so its values cannot be rewritten"]


class KnowsFilms(RightServer):
    """Rejects unknown films before it looks at the state."""

    def call(self, params: Json, user: str) -> Json:
        if params["arguments"]["film"] != "Dune":
            raise Rejection(-32602, "no such film")
        return super().call(params, user)


async def test_rejection_for_another_reason_proves_no_binding() -> None:
    report = await audited(KnowsFilms(), "book")
    assert verdict(report, "S5.arguments") is ClauseVerdict.UNTRIED
    assert told(report, "S5.arguments")[0].endswith("'no such film', which may have another reason")
    assert verdict(report, "A1") is ClauseVerdict.PASSED


class ServesAda(BindsNoUser):
    def call(self, params: Json, user: str) -> Json:
        if user != "Bearer ada":
            raise Rejection(-32000, "log in")
        return super().call(params, user)


async def test_user_who_cannot_call_proves_no_binding() -> None:
    report = await audited(ServesAda(), "book")
    assert verdict(report, "S5.principal") is ClauseVerdict.UNTRIED
    assert "the other user cannot start a call" in told(report, "S5.principal")[0]


class ForgetsUsedStates(RightServer):
    """Accepts a state that was attacked never again, as one that counts attempts does."""

    attempts = 0

    def opened(self, state: Any) -> Json:
        try:
            return super().opened(state)
        except Rejection:
            self.attempts += 1
            raise

    def require_fresh(self, call: Json) -> None:
        if self.attempts > 5:
            raise Rejection(-32602, "Invalid or expired requestState")


async def test_attacks_on_a_dead_state_prove_nothing() -> None:
    report = await audited(ForgetsUsedStates(), "book")
    assert verdict(report, "S4.tampered") is ClauseVerdict.UNTRIED
    assert told(report, "S4.tampered")[0].startswith("after the attacks, even the honest request was answered with")


class LimitsItsClients(RightServer):
    """Serves 60 requests."""

    served = 0

    async def respond(self, body: bytes, user: str) -> tuple[int, str, str]:
        self.served += 1
        if self.served > 60:
            return 429, "text/plain", "Too Many Requests"
        return await super().respond(body, user)


async def test_server_that_limits_clients_proves_nothing_more() -> None:
    report = await audited(LimitsItsClients(), "book")
    assert verdict(report, "S9.content") is ClauseVerdict.UNTRIED
    assert told(report, "S9.content") == ["the server answers with HTTP status 429"]
    assert failed(report) == set()


class IgnoresItsState(RightServer):
    """Sends a state that has no meaning: it keeps nothing, and asks one question."""

    def call(self, params: Json, user: str) -> Json:
        answer = self.checked(params.get("inputResponses", {})).get("sure")
        if isinstance(answer, dict) and self.fits("sure", cast("Json", answer).get("content") or {}):
            return self.result_of_nothing()
        self.require_capability(params)
        return {"resultType": "input_required", "inputRequests": {"sure": self.question("sure")}, "requestState": "x1"}

    def result_of_nothing(self) -> Json:
        return {"resultType": "complete", "content": [{"type": "text", "text": "cancelled"}]}


async def test_state_without_effect_is_a_fact_and_no_failure() -> None:
    report = await audited(IgnoresItsState(), "cancel")
    assert verdict(report, "S4.tampered", "cancel") is ClauseVerdict.FACT
    assert told(report, "S4.tampered") == [
        "the result is the same with any state or without one, so tampering changes nothing"
    ]
    assert not {clause for clause in failed(report) if clause.startswith("S4")}


class SaysAlwaysTheSame(RightServer):
    def finish(self, call: Json) -> Json:
        return {"resultType": "complete", "content": [{"type": "text", "text": "booked"}]}


async def test_equal_results_do_not_show_that_a_tool_acts_once() -> None:
    report = await audited(SaysAlwaysTheSame(), "book", once=frozenset({"book"}))
    assert verdict(report, "S5.once") is ClauseVerdict.FACT


GARBAGE: Final[list[Any]] = [None, True, -1, 1e308, "", "\x1b[2J", [], [[]], {}, {"a": None}, ["type"]]


class Mumbles(RightServer):
    """Answers with JSON of the right shape and values of any type, as a broken or hostile server does."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.random = seed, random.Random(seed)

    def written(self, answer: Json) -> str:
        # Few lists of tools survive, so some stay as they are.
        is_list = self.seed % 4 and {"serverInfo", "tools"} & answer.get("result", {}).keys()
        return super().written(answer if is_list else self.garbled(answer))

    def garbled(self, value: Any, depth: int = 0) -> Any:
        if depth > 1 and self.random.random() < 0.06:
            return self.random.choice(GARBAGE)
        if isinstance(value, dict):
            return {key: self.garbled(item, depth + 1) for key, item in cast("Json", value).items()}
        if isinstance(value, list):
            return [self.garbled(item, depth + 1) for item in cast("list[Any]", value)]
        return value


@pytest.mark.parametrize("seed", range(8))
async def test_any_response_is_survived(seed: int) -> None:
    """An audit ends with a report or with a reason."""
    limits = AuditLimits(requests=120, seconds=60, timeout=60, body_bytes=2**18)
    with suppress(AuditFailed):
        report = await audited(Mumbles(seed), "book", "plan", limits=limits)
        assert report.requests <= 120


DEEP: Final = "[" * 100_000


class AnswersDeeply(RightServer):
    def written(self, answer: Json) -> str:
        return super().written(answer).replace('"Which row?"', DEEP)


async def test_response_of_any_depth_is_survived() -> None:
    report = await audited(AnswersDeeply(), "book")
    assert "a body that is not JSON" in "".join(told(report, "S4.tampered"))
