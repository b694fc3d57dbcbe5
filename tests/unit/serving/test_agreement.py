"""Workers that may serve together, and workers that may join them."""

from typing import Any

from roundtrip.ledger import Reach
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import caution_for_older_clients, cautions, objection, objection_to_newcomer
from roundtrip.serving.settings import ServeSettings
from tests.kit.tables import check_each

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


def test_workers_that_differ_may_not() -> None:
    assert "different services" in (objection([ONE, ONE, ONE._replace(audience="other")]) or "")
    assert "different keys" in (objection([ONE, ONE, ONE._replace(keys=("new_",))]) or "")
    assert "different tools" in (objection([ONE, ONE, ONE._replace(build="2")]) or "")


WARNINGS: list[tuple[dict[str, Any], str]] = [
    ({"own_key": True}, "roundtrip keys new"),
    ({"exactly_once": True}, "SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"),
    ({"stores_calls": True}, "SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"),
]


def test_warning_for_one_worker_is_an_error_for_several() -> None:
    def check(changes: dict[str, Any], told: str) -> None:
        changed = ONE._replace(**changes)
        assert objection([changed]) is None
        assert told in (objection([changed, changed]) or "")
        assert told in (objection_to_newcomer(changed, []) or "")
        assert [told in caution for caution in cautions(changed)] == [True]

    check_each(WARNINGS, check)
    assert cautions(ONE) == []


Keys = tuple[str, ...]
KEYS: list[tuple[Keys, Keys, bool]] = [
    (("old_",), ("old_", "new_"), True),
    (("old_", "new_"), ("new_", "old_"), True),
    (("new_", "old_"), ("new_",), True),
    (("old_",), ("new_", "old_"), False),
    (("old_", "new_"), ("new_",), False),
    (("old_",), ("new_",), False),
    ((), (), True),
]


def test_new_and_running_workers_verify_each_others_tokens() -> None:
    joined = [
        objection_to_newcomer(ONE._replace(keys=newcomer, build="2"), [ONE._replace(keys=running)]) is None
        for running, newcomer, _ in KEYS
    ]
    assert joined == [joins for *_, joins in KEYS]


OLDER_CLIENTS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    (
        {"workers": 2, "sessions": False},
        ("form",),
        "cannot be asked, and each tool that asks them fails, because --no-sessions is set. To",
    ),
    ({"sessions": False}, ("form", "link", "model", "url"), "get links to question pages, because --no-sessions"),
    ({"workers": 2, "json_response": "always"}, ("form",), "because --json-response is always. To"),
    (
        {"sessions": False},
        ("form", "model"),
        "if a question allows that, because --no-sessions is set. To ask them by form",
    ),
    (
        {"json_response": "always"},
        ("local",),
        "each tool that asks them fails, because --json-response is always. The server does not use forms.",
    ),
]


def test_caution_for_older_clients_fits_the_channels() -> None:
    for workers in (1, 2):
        assert caution_for_older_clients(ONE, ServeSettings(workers=workers)) is None
    settings = ServeSettings(workers=2, sessions=False)
    caution = caution_for_older_clients(ONE._replace(channels=("form",)), settings, obstacle="a path is too long")
    assert caution is not None
    assert "because the workers cannot pass sessions on: a path is too long. To ask them by form, set TMPDIR" in caution

    def check(settings: dict[str, Any], channels: tuple[str, ...], text: str) -> None:
        caution = caution_for_older_clients(ONE._replace(channels=channels), ServeSettings(**settings))
        assert caution is not None
        assert text in caution
        assert caution.count(". ") == 1

    check_each(OLDER_CLIENTS, check)
