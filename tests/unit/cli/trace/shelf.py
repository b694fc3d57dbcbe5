"""Provide a transcript with everything that the views show."""

from pathlib import Path
from typing import Final

from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.trace.writing.lines import Line
from tests.kit.transcripts import AT, answer, answered, asked, began, ended, question, rejected, write

RETRY: Final = "retry-call-1"
LIVE: Final = "live-call-2"
PENDING: Final = "pending-cal3"
DIGEST: Final = {"digest": "abcdefghijkl", "bytes": 1200}


def retry_call() -> list[Line]:
    """Write three legs on three instances: a deploy rewords a question, the first leg is replayed, a token expires."""
    price = {"key": "price", "how": "computed", "start": 0.5, "ms": 40.0}
    return [
        began(call=RETRY, arguments={"value": {"title": "Dune"}}, protocol="2026-07-28", principal="ZmluZ2Vy"),
        asked(
            0.05,
            question("format", message="Paperback or hardcover?"),
            call=RETRY,
            ms=50.0,
            moves=[["begin", "resolving", 0.1], ["ask", "awaiting_input", 48.0]],
            nodes=[price, {"key": "format", "how": "asked", "start": 41.0, "ms": 1.0}],
            until=AT + 600,
            token={"bytes": 512, "added": ["asked:format"]},
        ),
        began(2, call=RETRY, instance="b", arguments={"value": {"title": "Dune"}}),
        asked(
            2.01,
            question("format", message="Paperback or hardcover?"),
            call=RETRY,
            instance="b",
            ms=10.0,
            token={"bytes": 512, "added": ["asked:format"]},
        ),
        began(30, call=RETRY, leg=2, round=1, instance="b", build="2", previous_build="1", token_bytes=512),
        asked(
            30.1,
            question("format", Reason.REWORDED, message="Which binding?", changed=["message"]),
            question("gift", message="A gift?"),
            call=RETRY,
            leg=2,
            round=2,
            instance="b",
            ms=100.0,
            moves=[["resume", "resumed", 0.1], ["resolve", "resolving", 0.2], ["ask", "awaiting_input", 98.0]],
            answers=[answer("format", how="lost", data={"format": "paperback"})],
            ignored=1,
            until=AT + 630,
            token={"bytes": 540, "added": ["asked:gift"], "changed": ["asked:format"]},
        ),
        rejected(700, RejectionReason.EXPIRED, call=RETRY, leg=3, instance="c", token_bytes=540),
        began(90, call=RETRY, leg=3, round=2, instance="c", build="2", token_bytes=540),
        ended(
            90.2,
            call=RETRY,
            leg=3,
            round=2,
            instance="c",
            ms=200.0,
            moves=[
                ["resume", "resumed", 0.1],
                ["resolve", "resolving", 0.2],
                ["execute", "executing", 100.0],
                ["finish", "completed", 199.0],
            ],
            answers=[answer("format", data={"format": "paperback"}), answer("gift", "decline")],
            steps=[{"key": "reserve", "how": "ran", "start": 101.0, "ms": 80.0, "value": {"value": 17}}],
            reused=["size"],
            bodies=1,
            result={"value": "ordered"},
        ),
    ]


def live_call() -> list[Line]:
    """Write one leg with one round, whose body fails; nothing is revealed."""
    return [
        began(200, call=LIVE, tool="sell", era="live", protocol="2025-11-25", arguments=DIGEST),
        asked(201, question("price", message=DIGEST, form=DIGEST), call=LIVE, by="body", ms=1000.0),
        answered(206, call=LIVE, keys=["price"], ms=6000.0, waited=5000.0, answers=[answer("price", data=DIGEST)]),
        ended(
            207,
            call=LIVE,
            round=1,
            ms=7000.0,
            state="failed",
            bodies=1,
            is_error=True,
            error={"type": "ValueError", "text": DIGEST},
        ),
    ]


def pending_call() -> list[Line]:
    """Write a call that waits for a page to be visited."""
    shown = question("pay", kind="page", url="https://shop.example/pay?x=1", message="Please pay.")
    return [
        began(300, call=PENDING, tool="pay"),
        asked(301, shown, call=PENDING, until=AT + 901, token={"bytes": 2048}),
    ]


def shelf(folder: Path) -> Path:
    """Return the transcript of all three calls, and of a token that names no call."""
    strays = [rejected(400, RejectionReason.TAMPERED, tool="order")]
    return write(folder / "calls.jsonl", [*retry_call(), *live_call(), *pending_call(), *strays])
