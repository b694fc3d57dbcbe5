"""Values that placeholders replace, values that redaction omits, and values that stay."""

import base64
import json
import random
import string
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from roundtrip.testing.snapshots.placeholders import Placeholders
from roundtrip.testing.snapshots.redaction import REDACTED, SnapshotRedaction
from roundtrip.tokens.token import KeyRing, TokenCodec

TICKET = f"rt1.WyJhIl0.{'b' * 43}"
RANDOM = random.Random(7)


def drawn(length: int, letters: str = string.ascii_letters + string.digits + "-_") -> str:
    return "".join(RANDOM.choice(letters) for _ in range(length))


VARYING: dict[str, str] = {
    "0b6f3a1e-58f7-4c1b-9d3c-7a2b1c0d9e8f": "<id 1>",
    "0B6F3A1E-58F7-4C1B-9D3C-7A2B1C0D9E8F": "<id 1>",
    "order_0b6f3a1e-58f7-4c1b-9d3c-7a2b1c0d9e8f.pdf": "order_<id 1>.pdf",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709": "<id 1>",
    "order_da39a3ee5e6b4b0d3255bfef95601890afd80709": "order_<id 1>",
    "pi_3MtwBwLkdIwHu7ix28a3tqPa": "<id 1>",
    "span 00f067aa0ba902b7!": "span <id 1>!",
    "123456789012345678901234": "<id 1>",
    "00-0af7651916cd43dd8448eb211c80319c-3480386395312156-03": "00-<id 1>-<id 2>-03",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV": "<id 1>",
    "key=Vk3xP0qLr7_ZsT2mB9-dYw": "key=<id 1>",
    f"see https://a.example/?ticket={TICKET}&x=1": "see https://a.example/?ticket=<ticket 1>&x=1",
    "http://127.0.0.1:54321/mcp": "http://127.0.0.1:<port 1>/mcp",
    "localhost:8000 and [::1]:8000": "localhost:<port 1> and [::1]:<port 1>",
    "<Seat object at 0x7f3a5c0d1e80>": "<Seat object at <address 1>>",
    base64.b64encode(bytes(range(200, 232))).decode(): "<id 1>",
    base64.b64encode(bytes(range(200, 233))).decode(): "<id 1>",
}


def test_varying_values_are_replaced() -> None:
    assert {text: Placeholders().text(text) for text in VARYING} == VARYING


ORDINARY: list[str] = [
    "",
    "2026-07-28",
    "09:30:00",
    "2026-07-28T09:30",
    "4111111111111111",
    "+49 30 1234567890",
    "1795000000.25",
    "deadbeef",
    "internationalisation",
    "INTERNATIONALISATION_OF_EVERYTHING",
    "choose_seat_for_the_film_of_the_day_2026",
    "SummerMenu2026-Vegetarian",
    "SomeLongCamelCaseIdentifierName",
    "HTTPServerErrorResponseHandler",
    "Report_Final_2024-05-01_Signed",
    "https://cinema.example:8443/films/Solaris-1972/seats?row=middle",
    "/srv/reports/Quarterly/Summary",
    "a@b.example, c@d.example",
    "0x7f3a5c0d1e80",
    "r3sAAAA.short",
    "10.0.0.1:8080",
    "2020-07-28T09:30:00Z",
    "at 2020-07-28 09:30:00.5+02:00",
    "9999-99-99T99:99:99Z",
]


def test_ordinary_data_and_implausible_times_stay() -> None:
    assert [text for text in ORDINARY if Placeholders().text(text) != text] == []


def test_times_of_now_are_replaced() -> None:
    spelt: list[str] = []
    for minutes in (-50, 0, 50):
        when = datetime.now(UTC) + timedelta(minutes=minutes)
        local = when.astimezone().replace(tzinfo=None)
        spelt += [when.isoformat(), when.strftime("%Y-%m-%dT%H:%M:%SZ"), f"{local:%Y-%m-%d %H:%M:%S}"]
        spelt.append(f"{when.replace(tzinfo=None):%Y-%m-%dT%H:%M:%S,%f}")
    told = {text: Placeholders().text(f"at {text}, or later") for text in spelt}
    assert told == dict.fromkeys(spelt, "at <time 1>, or later")


def test_text_written_by_the_test_is_unchanged() -> None:
    seat = "Kino-Saal-3-Reihe-B-Platz-12"
    now = datetime.now(UTC).isoformat()
    assert Placeholders().text(f"{seat} {now}") == "<id 1> <time 1>"
    told = Placeholders(keep={"seat": seat, "times": [now]}).apply({"seat": seat, "text": f"{seat} {now}"})
    assert told == {"seat": seat, "text": f"{seat} {now}"}


def test_equal_values_share_a_number() -> None:
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    told = Placeholders().apply({"a": one, other: [f"{other} after {one.upper()}", one], "n": 3})
    assert told == {"a": "<id 1>", "<id 2>": ["<id 2> after <id 3>", "<id 1>"], "n": 3}


def test_states_of_every_origin_are_redacted_as_tokens() -> None:
    state = "theirs, with spaces"
    ours = TokenCodec(KeyRing(["k" * 32]), entropy=lambda size: b"\0" * size).seal(b"{}")
    told = Placeholders([state, None, state + "!"]).apply([f"{state}!", state, f"got {ours}"])
    assert told == ["<token 1>", "<token 2>", "got <token 3>"]


def test_drawn_ids_are_distinguished_from_words() -> None:
    random_ids = [drawn(length) for length in (24, 32, 43) for _ in range(1000)]
    uuids = [uuid.UUID(int=RANDOM.getrandbits(128)) for _ in range(500)]
    random_ids += [spelt for one in uuids for spelt in (str(one), one.hex)]
    assert [one for one in random_ids if Placeholders().text(f"x {one}") != "x <id 1>"] == []


def redacted(value: Any, *fields: str) -> Any:
    redaction = SnapshotRedaction(fields)
    return redaction.texts(redaction.data(value))


def test_a_field_is_redacted_at_any_depth() -> None:
    value = {"card": "4111", "people": [{"card": {"number": 7}, "name": "Ada"}]}
    assert redacted(value, "card") == {"card": REDACTED, "people": [{"card": REDACTED, "name": "Ada"}]}


def test_repeated_secret_texts_are_redacted_and_short_values_stay() -> None:
    value = {"card": ["4111-2222", 55667788, "12", True], "said": "4111-2222 of 12 for 55667788", "n": 55667788}
    assert redacted(value, "card")["said"] == f"{REDACTED} of 12 for {REDACTED}"
    assert redacted(value, "card")["n"] == REDACTED
    assert redacted({"card": True, "said": "True"}, "card")["said"] == "True"


def test_json_in_a_text_is_redacted_by_name() -> None:
    text = redacted(json.dumps({"pin": "12", "name": "Ada"}), "pin")
    assert json.loads(text) == {"pin": REDACTED, "name": "Ada"}


def test_text_that_only_looks_like_json_stays() -> None:
    for text in ("[not json", '{"name": "Ada"}', "{", "[" * 100_000):
        assert redacted(text, "pin") == text


def test_redacted_form_keeps_its_shape_and_loses_values() -> None:
    shape = {"type": "string", "title": "Card", "default": "4111", "enum": ["4111", "5500"], "maxLength": 9}
    other = {"type": "string", "default": "Ada"}
    assert SnapshotRedaction(["card"]).form({"card": shape, "name": other}) == {
        "card": {"type": "string", "title": "Card", "default": REDACTED, "enum": REDACTED, "maxLength": 9},
        "name": other,
    }


def test_nothing_is_touched_without_fields() -> None:
    value = {"card": '{"pin": 1}'}
    assert SnapshotRedaction().texts(SnapshotRedaction().data(value)) is value
