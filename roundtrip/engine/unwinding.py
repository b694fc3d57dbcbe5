"""What ends a run of a body before it returns, and what to make of an exception that may hold several of those."""

import asyncio
import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, cast

import anyio

from roundtrip.errors import QuestionRefused

__all__ = ["Revision", "Suspension", "cancellations_restored", "verdict_on"]


class Suspension(BaseException):
    """Ends a leg that has questions out. Not an `Exception`, so that `except Exception` in user code lets it pass."""


class Revision(BaseException):
    """Ends a run of a body whose user has changed an earlier answer; the body runs again from its top."""


_ENDINGS: Final = (QuestionRefused, Revision, Suspension)


@contextmanager
def cancellations_restored() -> Generator[None]:
    """Take back the cancellation that a failing `asyncio.TaskGroup` asks of its own task, and on Python 3.11 forgets.

    In memory that may be the client's task, which would end of it later. A group asks once, so what else was asked is
    genuine and stays; so is all of it while a scope around the leg is cancelled.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # Another event loop than asyncio's, which has no such groups.
        task = None
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except (BaseExceptionGroup, *_ENDINGS):
        if task is not None and task.cancelling() > before and anyio.current_effective_deadline() > -math.inf:
            task.uncancel()
        raise


def verdict_on(raised: BaseException) -> BaseException:
    """What an exception of a body means, as task groups wrap several in one.

    A crash wins over a refusal, a refusal over a revision, and that over a suspension: what is out need not be asked.
    """
    if isinstance(raised, _ENDINGS):
        return raised
    leaves = list(_leaves(raised))
    endings = [leaf for leaf in leaves if isinstance(leaf, _ENDINGS)]
    crashes = [leaf for leaf in leaves if not isinstance(leaf, _ENDINGS)]
    if len(crashes) == 1:
        # Alone or beside a question that was out: the crash is what the author has to see, not the group around it.
        return crashes[0]
    if crashes:
        return BaseExceptionGroup(str(raised), crashes) if endings else raised
    return min(endings, key=lambda leaf: _ENDINGS.index(type(leaf)))


def _leaves(raised: BaseException) -> Iterator[BaseException]:
    if isinstance(raised, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", raised).exceptions:
            yield from _leaves(inner)
    else:
        yield raised
