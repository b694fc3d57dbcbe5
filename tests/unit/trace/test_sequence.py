"""The sequence of a call has every request and answer, and nothing of a transcript becomes Mermaid."""

import re

from roundtrip.trace.explaining.sequence import MessageKind, exchange_of, mermaid
from tests.kit.tables import check_each
from tests.unit.trace.tales import HOSTILE, Tale, question


def told(tale: Tale) -> list[tuple[str, str, str, int]]:
    exchange = exchange_of(tale.call())
    names = exchange.participants
    return [(names[message.source], names[message.target], message.text, message.step) for message in exchange.messages]


def test_every_request_and_answer_of_a_retried_call_is_drawn() -> None:
    tale = Tale().began(1, "ash").asked(question("a")).rejected("expired", "ash").began(2, "birch")
    assert mermaid(tale.call()).splitlines() == [
        "sequenceDiagram",
        "    actor p0 as Client",
        "    participant p1 as ash",
        "    participant p2 as birch",
        "    p0->>p1: tools/call order",
        "    p1-->>p0: asks a",
        "    p0->>p1: retry (leg 2)",
        "    p1--xp0: token rejected: expired",
        "    p0->>p2: retry, token of 300 B, after 2.0 s",
        "    Note over p2: no recorded end",
    ]
    tale.ended(answers=[{"key": "a", "action": "accept", "how": "taken"}])
    assert told(tale)[-2:] == [
        ("Client", "birch", "retry with a: accept, token of 300 B, after 2.0 s", 1),
        ("birch", "Client", "completed", 1),
    ]


def test_questions_of_the_live_era_are_requests_to_the_client() -> None:
    tale = Tale(era="live").began(1).asked(question("a"), question("b", "reworded")).answered("a", "b").ended()
    exchange = exchange_of(tale.call())
    assert [message.kind for message in exchange.messages] == [
        MessageKind.REQUEST,
        MessageKind.REQUEST,
        MessageKind.RESPONSE,
        MessageKind.RESPONSE,
    ]
    assert told(tale)[1:3] == [
        ("ash", "Client", "asks a, b (reworded)", 0),
        ("Client", "ash", "answers a, b, after 1.0 s", 1),
    ]


def test_call_known_by_rejection_alone_is_drawn() -> None:
    assert told(Tale().rejected("tampered", "ash")) == [
        ("Client", "ash", "retry (leg 1)", 0),
        ("ash", "Client", "token rejected: tampered", 0),
    ]


def test_leg_that_a_page_starts_is_no_request_of_the_client() -> None:
    tale = Tale(era="live").began(1, "ash").asked(question("a"), rung="link", token={"bytes": 0})
    tale.began(2, "birch", era="task", token_bytes=None)
    tale.asked(
        question("b"), rung="page", token={"bytes": 0}, answers=[{"key": "a", "action": "accept", "how": "taken"}]
    )
    assert told(tale)[1:] == [
        ("ash", "Client", "asks a by a link in the result", 0),
        ("birch", "birch", "a worker continues with a: accept, after 1.0 s", 1),
        ("birch", "birch", "asks b on its page", 1),
    ]
    assert "    Note over p2: asks b on its page" in mermaid(tale.call()).splitlines()


def test_a_leg_that_is_served_twice_is_two_requests() -> None:
    tale = Tale().began(1, "ash").asked(question("a")).began(1, "birch").asked(question("a"))
    assert [text for _, _, text, _ in told(tale)] == ["tools/call order", "asks a", "leg 1 again", "asks a"]


def test_instance_name_cannot_inject_mermaid_syntax() -> None:
    assert "    participant p1 as wrap#58; x" in mermaid(Tale().began(1, "wrap: x").call()).splitlines()
    assert "    participant p1 as ?" in mermaid(Tale().began(1, " ").call()).splitlines()


def test_nothing_of_a_transcript_is_mermaid() -> None:
    def check(hostile: str) -> None:
        tale = Tale("c", tool=hostile).began(1, hostile).asked(question(hostile)).rejected("expired", hostile)
        lines = mermaid(tale.call()).split("\n")
        shape = re.compile(
            r"sequenceDiagram|    (actor|participant) p\d as .+|    p\d(->>|-->>|--x)p\d: .+|    Note over p\d: .+"
        )
        assert all(shape.fullmatch(line) for line in lines)
        assert len(lines) == 7
        # What is left of special characters is the spelling of characters by their numbers.
        words = [re.sub(r"#\d+;", "", re.sub(r"^    (p\d\S+|\w+ p\d as) ", "", line)) for line in lines[1:]]
        assert not [word for word in words if re.search(r"[<>;#%{}\[\]$&\"\\`~@|^]", word)]

    check_each([HOSTILE, "a\nend\n%%{init: {}}%%", "x;y#quot;", "$$x$$", "\ud800", "<br/>", "\r\n"], check)
