"""Give each test the full per-minute budget for log lines."""

from collections.abc import Callable
from typing import Any, Final, cast

from roundtrip import limited_logs

__all__ = ["refill_budgets", "watch_budgets"]

_Budget: Final[Any] = vars(limited_logs)["_Budget"]
_spend: Final = cast("Callable[[Any, object], int | None]", _Budget.spend)
_spent: Final[list[Any]] = []
"""Budgets that a test has spent from."""


def watch_budgets() -> None:
    """Record which budgets tests spend from. A process has one of each, and runs many tests in a minute."""
    _Budget.spend = _spend_and_note


def _spend_and_note(budget: Any, kind: object) -> int | None:
    _spent.append(budget)
    return _spend(budget, kind)


def refill_budgets() -> None:
    """Refill all budgets."""
    for budget in _spent:
        cast("dict[object, Any]", vars(budget)["_kinds"]).clear()
    _spent.clear()
