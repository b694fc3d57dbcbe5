"""Networks are tested by what they find: each its own flaws, and nothing in a server without flaws."""

from dataclasses import dataclass

import pytest

from roundtrip.testing import (
    Breach,
    Delay,
    Deploy,
    Drop,
    Duplicate,
    Eavesdrop,
    Garble,
    Hop,
    Inapplicable,
    Invent,
    Network,
    Reorder,
    Restart,
    Rotate,
    Strip,
    Swap,
    Tamper,
    User,
)
from roundtrip.testing.user_defaults import NETWORKS
from tests.interaction.testing.networks.hand_made import ANSWERS, HONEST, SECRET, Flaw, Ledger, call, honest, maker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", NETWORKS)
async def test_a_server_without_flaws_passes_under_every_network(name: str) -> None:
    for tool, answers in ANSWERS.items():
        ledger = Ledger()
        conversation = await call(maker(ledger=ledger), tool, honest(name))
        assert (conversation.text, conversation.names) == (HONEST[tool], list(answers))
        assert ledger.booked == ([tool] if answers else [])


@dataclass(frozen=True, slots=True)
class Find:
    """A flaw, the network that finds it, and what it says."""

    flaw: Flaw
    network: Network
    says: str
    tool: str = "book"


FINDS = [
    Find(Flaw.KEEPS_CALLS_TO_ITSELF, Hop(), "another instance did not continue .* do all instances have the same keys"),
    Find(Flaw.KEEPS_CALLS_TO_ITSELF, Restart(), "the restarted server did not continue"),
    Find(Flaw.BOOKS_TWICE, Duplicate(), "'book: back, nuts, number 1' and .*number 2'; .* probably run twice"),
    Find(Flaw.BOOKS_TWICE_AT_ONCE, Duplicate(at_once=True), "number 1' and .*number 2'; .* probably run twice"),
    Find(Flaw.BOOKS_TWICE, Drop(), "sent again, and the server answered with .*number 1' and .*number 2'"),
    Find(Flaw.CRASHES_ON_WHAT_IS_DONE, Duplicate(), "delivered twice, and the server answered with the error -32603"),
    Find(Flaw.CRASHES_ON_WHAT_IS_DONE, Drop(), "so it was sent again, and the server answered with the error -32603"),
    Find(
        Flaw.REMEMBERS_ANSWERS_BY_ARGUMENT, Reorder(), "ended when the leg was sent again: the result 'book: back, nuts"
    ),
    Find(Flaw.KNOWS_ITS_NEWEST_KEY_ONLY, Rotate(), "rotated did not continue .* verify with each of its keys"),
    Find(Flaw.TAKES_EXPIRED_TOKENS, Delay(), "86400 s late, and the server answered with a question .*time.time"),
    Find(Flaw.TAKES_UNSIGNED_TOKENS, Tamper(), "its last character changed arrived, .* must reject the request"),
    Find(Flaw.DECODES_LAXLY, Tamper(), "padding at its end arrived, .* must reject the request"),
    Find(Flaw.TELLS_FAULTS_APART, Tamper(), "get the same error, .*signature is wrong.*foreign characters"),
    Find(Flaw.CRASHES_ON_BAD_TOKENS, Tamper(), "characters beyond ASCII arrived, .* the error -32603"),
    Find(Flaw.BINDS_NO_ARGUMENTS, Swap(), "with another 'film' argument, and the server answered with a question"),
    Find(Flaw.BINDS_NO_TOOL, Swap(), "'book' arrived at 'book_for_club', and the server answered with a question"),
    Find(Flaw.BINDS_NO_USER, Swap(), "arrived from another user, and the server answered with a question"),
    Find(Flaw.FAILS_ON_MISSING_ANSWERS, Strip(), "'seat' was lost; the server must ask again, but .*-32602"),
    Find(Flaw.FORGETS_SIBLINGS, Strip(), "'stars' was lost, but the server also asked 'words' again", tool="review"),
    Find(
        Flaw.TRUSTS_ANSWERS_WITHOUT_TOKEN, Invent(), "'seat' came without a token, .* the server continued with a ques"
    ),
    Find(Flaw.TRUSTS_EARLY_ANSWERS, Invent(), "'snack' came before their questions, and the server continued with the"),
    Find(
        Flaw.CRASHES_ON_UNKNOWN_ANSWERS, Invent(), "an unknown question was added, .* -32603 .* must ignore that answer"
    ),
    Find(Flaw.CRASHES_ON_GARBAGE, Garble(), "answer to 'seat' came as .*, and the server crashed"),
    Find(Flaw.TAKES_GARBAGE, Garble(), "'stars' came as .*, and the server continued with the result", tool="review"),
    Find(Flaw.LEAKS_IN_BASE64, Eavesdrop([SECRET]), f"readable without a key, and contains '{SECRET}'"),
]


@pytest.mark.parametrize("find", FINDS, ids=lambda find: f"{find.flaw.name.lower()}-{find.network.name}-{find.tool}")
async def test_each_flaw_is_found_by_its_own_network(find: Find) -> None:
    honest = await call(maker(find.flaw), find.tool)
    assert honest.text == HONEST[find.tool]
    with pytest.raises(Breach, match=find.says):
        await call(maker(find.flaw), find.tool, find.network)


@pytest.mark.parametrize("rolling", [False, True])
async def test_answers_by_name_are_kept_when_another_build_takes_over(rolling: bool) -> None:
    kept = await call(maker(), "transfer", Deploy(maker(reversed_questions=True), rolling=rolling))
    assert (kept.text, kept.names) == (HONEST["transfer"], ["sender", "receiver"])


@pytest.mark.parametrize("name", ["hop", "delay", "duplicate-at-once"])
async def test_networks_go_over_http(name: str) -> None:
    user = User(maker(), ANSWERS["book"], network=honest(name), over="http")
    assert (await user.call("book", film="Solaris")).text == HONEST["book"]


async def test_the_only_instances_of_a_list_are_not_restarted() -> None:
    servers = [maker()([b"k" * 32]) for _ in range(2)]
    assert (await call(servers, "book", Hop())).text == HONEST["book"]
    with pytest.raises(Inapplicable, match="a restart needs a function"):
        await call(servers, "book", Restart())


@pytest.mark.parametrize("leg", [1, 2])
async def test_the_response_to_one_leg_is_lost(leg: int) -> None:
    ledger = Ledger()
    conversation = await call(maker(Flaw.BOOKS_TWICE, ledger=ledger), "book", Drop(leg=leg))
    assert (conversation.text, ledger.booked) == (HONEST["book"], ["book"])
