"""Give each test the whole budget of lines that may be logged in a minute."""

from collections.abc import Callable
from typing import Any, Final, cast

from roundtrip import limited_logs

__all__ = ["refill", "watch_budgets"]

_Budget: Final[Any] = vars(limited_logs)["_Budget"]
_spend: Final = cast("Callable[[Any, object], int | None]", _Budget.spend)
_spent: Final[list[Any]] = []
"""Budgets of which a test has spent something."""


def watch_budgets() -> None:
    """Note which budgets tests spend from: one process has one of each, and runs many tests in a minute."""
    _Budget.spend = _spend_and_note


def _spend_and_note(budget: Any, kind: object) -> int | None:
    _spent.append(budget)
    return _spend(budget, kind)


def refill() -> None:
    """Fill all budgets again."""
    for budget in _spent:
        cast("dict[object, Any]", vars(budget)["_kinds"]).clear()
    _spent.clear()
