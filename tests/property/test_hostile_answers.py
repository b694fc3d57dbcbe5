"""Random answers to real questions: taken, asked again, or refused with an error; never a crash, never an execution."""

from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import BaseModel, ValidationError

from roundtrip.questions.forms import form_of
from roundtrip.testing.strategies import outcomes
from tests.kit.tiers import examples
from tests.property.vault import Choice, Send, Vault, besiege, is_the_frozen_refusal, json_of

TEXT: st.SearchStrategy[str] = st.one_of(
    st.text(max_size=15), st.sampled_from(["~", "]~", "action", "accept", "ok", "content", "roots"])
)
JSON = json_of(TEXT)
CONTENT: st.SearchStrategy[Any] = st.one_of(
    JSON,
    st.dictionaries(st.sampled_from(["ok", "note", "else"]), JSON, max_size=3),
)
ACTION: st.SearchStrategy[Any] = st.one_of(st.sampled_from(["accept", "decline", "cancel"]), JSON)
ANSWER: st.SearchStrategy[Any] = st.one_of(
    JSON,
    st.fixed_dictionaries({"action": ACTION}, optional={"content": CONTENT}),
    outcomes(form_of(Choice).schema).map(lambda outcome: outcome.model_dump(mode="json", exclude_none=True)),
    st.fixed_dictionaries({"roots": JSON}),
    st.fixed_dictionaries({"role": JSON, "content": JSON, "model": JSON}),
)
KEYS: st.SearchStrategy[str] = st.one_of(st.sampled_from(["confirm", "list_roots", "combination", ""]), TEXT)
RESPONSES: st.SearchStrategy[Any] = st.one_of(
    JSON,
    st.dictionaries(KEYS, ANSWER, max_size=4),
    st.fixed_dictionaries({"confirm": ANSWER, "list_roots": ANSWER}),
)


class Confirmed(BaseModel):
    """As much of a round's answers as decides whether the resolver behind the first question may run."""

    class Confirm(BaseModel):
        action: Literal["accept", "decline", "cancel"]

    confirm: Confirm


class Opened(BaseModel):
    """As much as decides whether the body may run."""

    class Confirm(BaseModel):
        class Content(BaseModel):
            ok: bool

        action: Literal["accept"]
        content: Content

    confirm: Confirm


def fits(schema: type[BaseModel], rounds: list[Any]) -> bool:
    for responses in rounds:
        try:
            schema.model_validate(responses)
        except ValidationError:
            continue
        return True
    return False


@settings(max_examples=examples(100), deadline=None, database=None)
@given(rounds=st.lists(RESPONSES, min_size=1, max_size=4))
def test_any_answer_is_accepted_asked_again_or_rejected(rounds: list[Any]) -> None:
    """Shows S7, S8, S9."""
    vault = Vault()

    async def play(send: Send) -> None:
        token = await vault.token()
        for responses in rounds:
            reply = await send({"requestState": token, "inputResponses": responses})
            if isinstance(reply, MCPError):
                assert reply.code == INVALID_PARAMS, reply
                assert not is_the_frozen_refusal(reply)
            elif reply.result_type == "input_required":
                assert reply.request_state is not None
                token = reply.request_state
            else:
                break
        assert not vault.computed or fits(Confirmed, rounds)
        assert not vault.opened or fits(Opened, rounds)

    besiege(vault, play)
