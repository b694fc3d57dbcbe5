"""Workers that may serve together, and workers that may join them."""

from typing import Any

import pytest

from roundtrip.ledger import Reach
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import cautions, objection, objection_to_newcomer

ONE = Identity(
    name="shop",
    keys=("old_",),
    audience="shop",
    build="1",
    ledger="MemoryLedger",
    reach=Reach.PROCESS,
    exactly_once=False,
    own_key=False,
)


def test_workers_that_are_alike_may_serve_together() -> None:
    assert objection([ONE, ONE, ONE]) is None
    assert objection([ONE._replace(exactly_once=True, reach=Reach.MACHINE)] * 2) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"audience": "other"}, "different services"),
        ({"keys": ("new_",)}, "different keys"),
        ({"build": "2"}, "different tools"),
    ],
)
def test_workers_that_differ_may_not(changes: dict[str, Any], told: str) -> None:
    assert told in (objection([ONE, ONE, ONE._replace(**changes)]) or "")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"own_key": True}, "roundtrip keys new"),
        ({"exactly_once": True}, "SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"),
        ({"stores_calls": True}, "SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"),
    ],
)
def test_warning_for_one_worker_is_an_error_for_several(changes: dict[str, Any], told: str) -> None:
    changed = ONE._replace(**changes)
    assert objection([changed]) is None
    assert told in (objection([changed, changed]) or "")
    assert told in (objection_to_newcomer(changed, []) or "")
    (caution,) = cautions(changed)
    assert told in caution
    assert cautions(ONE) == []


@pytest.mark.parametrize(
    ("running", "newcomer", "joins"),
    [
        (("old_",), ("old_", "new_"), True),
        (("old_", "new_"), ("new_", "old_"), True),
        (("new_", "old_"), ("new_",), True),
        (("old_",), ("new_", "old_"), False),
        (("old_", "new_"), ("new_",), False),
        (("old_",), ("new_",), False),
        ((), (), True),
    ],
)
def test_new_and_running_workers_verify_each_others_tokens(
    running: tuple[str, ...], newcomer: tuple[str, ...], joins: bool
) -> None:
    why = objection_to_newcomer(ONE._replace(keys=newcomer, build="2"), [ONE._replace(keys=running)])
    assert (why is None) is joins
