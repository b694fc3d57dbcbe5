"""Thousands of invented and mutated tokens: each gets the one frozen refusal, and nothing runs."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.machine.journal import to_text
from tests.kit.tiers import examples
from tests.property.vault import VALID, Reply, Send, Vault, besiege, is_the_frozen_refusal

ALPHABET = "ABCabc019-_.=~+/ \n\x00é"

Mutation = Callable[[str], str]


def tokenlike(kind: str, hint: str, body: str, signature: str) -> str:
    return f"r3{kind}{hint}.{body}.{signature}"


INVENTED: st.SearchStrategy[str] = st.one_of(
    st.text(max_size=60),
    st.text(ALPHABET, max_size=60),
    st.builds(
        tokenlike,
        st.sampled_from("sexq"),
        st.sampled_from(["", "AAAA", "AAA"]),
        st.one_of(st.text("ABCabc019-_.", max_size=80), st.binary(max_size=80).map(to_text)),
        st.binary(min_size=15, max_size=17).map(to_text),
    ),
)


def spliced(place: float, length: int, put: str) -> Mutation:
    def mutate(token: str) -> str:
        start = int(place * len(token))
        return token[:start] + put + token[start + length :]

    return mutate


def reordered(order: list[int]) -> Mutation:
    def mutate(token: str) -> str:
        parts = token.split(".")
        return ".".join(parts[place % len(parts)] for place in order)

    return mutate


def twice(token: str) -> str:
    return token * 2


def backwards(token: str) -> str:
    return token[::-1]


MUTATIONS: st.SearchStrategy[Mutation] = st.one_of(
    st.builds(spliced, st.floats(0, 1), st.integers(0, 3), st.text(ALPHABET, max_size=3)),
    st.builds(reordered, st.lists(st.integers(0, 3), min_size=1, max_size=5)),
    st.sampled_from([str.upper, str.lower, str.swapcase, twice, backwards]),
)


@settings(max_examples=examples(25), deadline=None, database=None)
@given(
    invented=st.lists(INVENTED, min_size=20, max_size=30),
    mutations=st.lists(MUTATIONS, min_size=20, max_size=30),
    encrypt=st.booleans(),
)
def test_every_foreign_token_gets_one_frozen_rejection(
    invented: list[str], mutations: list[Mutation], encrypt: bool
) -> None:
    """Shows S4."""
    vault = Vault(encrypt=encrypt)

    async def play(send: Send) -> None:
        own = (await vault.token(), await Vault(encrypt=not encrypt).token())
        for state in [*invented, *(mutate(token) for mutate in mutations for token in own)]:
            if state not in own:
                reply = await send({"requestState": state, "inputResponses": VALID})
                assert is_the_frozen_refusal(reply), (state, reply)
        assert vault.untouched

    besiege(vault, play)


def test_valid_token_opens_its_call() -> None:
    vault = Vault()

    async def play(send: Send) -> None:
        reply = await send({"requestState": await vault.token(), "inputResponses": VALID})
        assert isinstance(reply, Reply)
        assert not reply.is_error
        assert vault.opened == 1

    besiege(vault, play)
