"""Registration rejects a tool that can never work, with an error that names the function and the fix."""

from collections.abc import Generator
from typing import Annotated, Any, cast

import pytest

from roundtrip import Depends, InvalidSignature, Resolve
from tests.interaction.teardown.held import server_of


def current_account() -> str:
    return "ada"


def refusal_of(marker: Any) -> str:
    """Return the message by which a tool with this marker is rejected."""

    async def order(value: Annotated[str, marker]) -> str:
        return value

    with pytest.raises(InvalidSignature) as caught:
        server_of(order)
    return str(caught.value)


def test_a_function_may_take_itself_with_other_values_put_in() -> None:
    def node(below: str = "leaf") -> str:
        return f"<{below}>"

    async def order(value: str = Depends(node, Depends(node, node))) -> str:
        return value

    assert server_of(order)


def takes_two(one: str, two: str) -> str:
    return one + two


def takes_names(one: str, *, two: str = "") -> str:
    return one + two


def takes_any(*accounts: Annotated[str, Depends(current_account)]) -> str:
    return "".join(accounts)


def skips_one(floor: int = 3, account: str = Depends(current_account), /) -> str:
    return f"{floor} {account}"


def yields() -> Generator[str]:
    yield "a session"


class Held:
    def __enter__(self) -> str:
        return "held"

    def __exit__(self, *exc_info: object) -> None: ...


def takes_held(held: Annotated[str, Resolve(Held, remember=True)], again: str = Depends(Held)) -> str:
    return held + again


REFUSED: dict[str, tuple[Any, list[str]]] = {
    "more values than parameters": (
        Depends(takes_two, current_account, current_account, current_account),
        ["Depends(takes_two, ...) passes 3 values by position, but 'takes_two' takes 2"],
    ),
    "a value for a parameter that goes by name": (
        Depends(takes_names, current_account, current_account),
        ["Depends(takes_names, ...) passes 2 values by position, but 'takes_names' takes 1"],
    ),
    "a marker on any number of values": (
        Depends(takes_any),
        ["parameter 'accounts' of 'takes_any' takes any number of values", "Depends('current_account') is one value"],
    ),
    "a value by position after one that nothing fills": (
        Depends(skips_one),
        ["'skips_one' takes 'account' by position only, but", "parameter 'floor'; remove the '/'"],
    ),
    "a generator that is kept": (Resolve(yields, remember=True), ["Resolve(yields, remember=True)", "a plain value"]),
    "a context manager that is kept": (Depends(takes_held), ["Resolve(Held, remember=True)", "remember a plain value"]),
}


def test_impossible_plan_is_rejected_at_registration() -> None:
    refusals = {what: refusal_of(marker) for what, (marker, _) in REFUSED.items()}
    assert [what for what, refusal in refusals.items() if not refusal.startswith("tool 'order'")] == []
    assert [part for what, (_, parts) in REFUSED.items() for part in parts if part not in refusals[what]] == []


def test_non_function_is_rejected_where_written() -> None:
    with pytest.raises(TypeError, match="Depends\\('ada'\\) must be given functions"):
        Depends(cast("Any", "ada"))
    with pytest.raises(TypeError, match="Depends\\(7\\) must be given functions"):
        Depends(current_account, cast("Any", 7))
    with pytest.raises(TypeError, match=r"Depends\(Depends\('current_account'\)\) must be given functions"):
        Depends(Depends(current_account))
