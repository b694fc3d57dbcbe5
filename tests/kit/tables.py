"""Input tables that one test checks, so that a failure names every wrong row."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["check_each"]


def check_each(rows: Iterable[Any], check: Callable[..., None]) -> None:
    """Check all rows in a table. A function with several parameters receives a row's parts.

    Raises:
        AssertionError: Some rows failed. The message names them with their errors.
    """
    is_single = len(inspect.signature(check).parameters) == 1
    failures: list[str] = []
    count = 0
    for row in rows:
        count += 1
        try:
            check(row) if is_single else check(*row)
        except AssertionError as error:
            failures.append(f"{row!r}: {error}")
    assert count, "the table is empty"
    assert not failures, "\n".join(failures)
