"""Token vectors: one token for each shape, with fixed content. `specs.generate` writes them, and tests read them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import Action, Asked, Chain, Computed, Entry, Journal, from_text
from roundtrip.machine.pins import Pinner, digest
from roundtrip.tokens.binding import audience_digest, pack_binding, principal_digest
from roundtrip.tokens.token import JournalCodec, KeyRing, Sealer, TokenCodec

__all__ = ["REFUSED", "RESTARTED", "VECTORS", "Vector", "read_vectors", "vectors_page"]

VECTORS: Final = Path(__file__).resolve().parent / "vectors" / "v3.json"

REFUSED: Final = VECTORS.with_name("v2.json")
"""Tokens in the previous format. No version reads this format any more, because its pins could be made to collide."""

RESTARTED: Final = VECTORS.with_name("v3-restarted.json")
"""A token from release 0.2.0, for a call that began again after the call had expired. No version writes such tokens any
more.
"""

_OLD: Final = "3919fa587bac6fb29f361ef9093d9aaf66045d4c70ecdcdd95800bb8ac4bf9f0"
_NEW: Final = "b33cff1f671537a291ed598495553c3ed2504199406cc5a85de94a8dd367fe30"
_NONCES: Final = ("6e6f6e6365206f6e65202020", "6e6f6e63652074776f202020")
_BORN: Final = 1_785_000_000.0


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One token, with all inputs needed to make the token. `keys` are in hexadecimal, newest first."""

    name: str
    journal: Journal
    keys: tuple[str, ...] = (_NEW,)
    method: str = "tools/call"
    target: str = "order"
    arguments: Any = None
    audience: str | None = "bookshop"
    principal: str | None = None
    encrypt: bool = False
    deflated: bool = False
    payload: bytes = b""
    token: str = ""

    @property
    def ring(self) -> KeyRing:
        """Return the vector's keys."""
        return KeyRing([bytes.fromhex(key) for key in self.keys])

    @property
    def claims(self) -> bytes:
        """Return the first bytes of the payload."""
        params = {"uri": self.target} if self.method == "resources/read" else {"name": self.target}
        try:
            call = from_text(self.journal.call_id)
        except ValueError:  # the id has another form
            call = bytes(9)
        claims = pack_binding(
            self.method,
            params | {"arguments": self.arguments},
            audience=audience_digest(self.audience),
            call=call,
            bound=self.principal is not None,
        )
        return claims if self.principal is None else claims + principal_digest(self.principal, call)

    def codecs(self) -> tuple[JournalCodec, TokenCodec]:
        """Return the codecs that write and read the token. Each codec has a nonce for a single use."""
        sealer = Sealer(self.ring, purpose=b"seal", entropy=_single_use(_NONCES[0]))
        return JournalCodec(sealer), TokenCodec(self.ring, entropy=_single_use(_NONCES[1]), encrypt=self.encrypt)

    def complete(self) -> "Vector":
        """Return this vector with its payload and token."""
        journals, tokens = self.codecs()
        payload = self.claims + journals.write(self.journal, deflate=not self.encrypt)
        return replace(self, payload=payload, token=tokens.seal(payload))


def _single_use(nonce: str) -> Callable[[int], bytes]:
    """Return an entropy source that returns these bytes once."""
    left = [bytes.fromhex(nonce)]

    def entropy(size: int) -> bytes:
        drawn = left.pop()
        if len(drawn) != size:
            raise ValueError(f"{size} bytes were drawn")
        return drawn

    return entropy


_CALL: Final = "Zm9vYmFyYmF6"


def _pin(message: str, schema: str, key: str | None = _NEW) -> bytes:
    """Return the pin that a server with this key makes for a question."""
    keys = KeyRing([bytes.fromhex(key)]).derive(b"pin") if key is not None else ()
    return Pinner(keys).pin(_CALL, digest(message), digest(schema))


def _vectors() -> Iterator[Vector]:
    bare = Journal(_CALL, born=_BORN, deadline=_BORN + 600, end=_BORN + 3600, leg=1, round=1, written=_BORN)
    plain = replace(
        bare,
        leg=2,
        round=2,
        fingerprint="0123ab",
        build="89cdef",
        entries={"size": Entry(Action.ACCEPT, _pin("Which size?", "size"), {"cm": 80})},
        asked={"confirm": Asked(_pin("Sure?", "consent"))},
        written=_BORN + 1.5,
    )
    yield Vector(name="plain", journal=plain)
    yield Vector(name="of a server without a name, first leg", journal=bare, audience=None)
    yield Vector(
        name="bound to a principal, by the older of two keys", journal=plain, principal="ann", keys=(_OLD, _NEW)
    )
    alike = replace(plain, asked={"confirm": Asked(_pin("Sure of that size?", "size"))})
    yield Vector(
        name="of a prompt, its forms alike", journal=alike, method="prompts/get", arguments={"b": "2", "a": "ä"}
    )
    yield Vector(name="of a resource", journal=plain, method="resources/read", target="book://dune")
    answers = {
        f"question_{n}": Entry(
            Action(n % 3), _pin(f"{n}?", "text"), {"text": f"answer {n} " * 4} if n % 3 == 0 else None
        )
        for n in range(8)
    }
    tried = {"confirm": Asked(_pin("Sure?", "consent"), attempts=2, discards=1)}
    yield Vector(name="deflated", journal=replace(plain, entries=answers, asked=tried), deflated=True)
    sealed = replace(plain, computed={"quote": Computed({"price": "9.50"})})
    yield Vector(name="with a sealed part", journal=sealed)
    yield Vector(name="with a state of its author", journal=replace(bare, authored='by hand: "äöü" \U0001f600'))
    yield Vector(name="encrypted", journal=replace(sealed, entries=answers), encrypt=True, principal="ann")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    yield Vector(name="of a leg that is a span", journal=replace(sealed, traceparent=traceparent))
    salted = {key: entry._replace(pin=_pin("Which size?", "size", None)) for key, entry in plain.entries.items()}
    yield Vector(
        name="with pins that no key made",
        journal=replace(plain, entries=salted, asked={"confirm": Asked(_pin("Sure?", "consent", None))}),
    )
    turned = replace(plain, entries={"size": plain.entries["size"]._replace(pin=_pin("Which size?", "size", _OLD))})
    yield Vector(name="with pins of two keys", journal=turned, keys=(_NEW, _OLD))
    odd = replace(
        plain,
        call_id="a call",
        fingerprint="",
        build="2026-11",
        version="2.0",
        leg=300,
        round=256,
        deadline=_BORN + 5e6,
        end=_BORN + 6e6,
    )
    yield Vector(name="of fields that do not fit the head", journal=odd)
    yield Vector(name="of an intent, in format 4", journal=replace(plain, chain=Chain.FIRST))
    yield Vector(
        name="of an intent that began again, in format 4",
        journal=replace(sealed, entries=answers, round=3, chain=Chain.AGAIN, skipped=1),
        deflated=True,
    )


def vectors_page() -> str:
    """Return the vector file's text. Keep a stored deflated token if it is equivalent, because zlib implementations
    differ.
    """
    stored = {vector.name: vector for vector in read_vectors()} if VECTORS.exists() else {}
    vectors = [_prefer_stored(stored.get(vector.name), vector.complete()) for vector in _vectors()]
    return json.dumps([_to_json(vector) for vector in vectors], indent=2) + "\n"


def _prefer_stored(stored: Vector | None, made: Vector) -> Vector:
    if stored is None or not made.deflated:
        return made
    journals, tokens = stored.codecs()
    try:
        payload = tokens.unseal(stored.token)
        same = journals.read(payload.removeprefix(made.claims)) == made.journal
    except TokenRejected:
        return made
    restored = replace(made, payload=payload, token=stored.token)
    return stored if same and _to_json(restored) == _to_json(stored) else made


def read_vectors(file: Path = VECTORS) -> list[Vector]:
    """Return a file's vectors."""
    return [_from_json(row) for row in json.loads(file.read_text(encoding="utf-8"))]


def _to_json(vector: Vector) -> dict[str, Any]:
    journal = vector.journal
    return {
        "name": vector.name,
        "keys": list(vector.keys),
        "encrypt": vector.encrypt,
        "deflated": vector.deflated,
        "nonces": list(_NONCES),
        "request": {
            "method": vector.method,
            "target": vector.target,
            "arguments": vector.arguments,
            "audience": vector.audience,
            "principal": vector.principal,
        },
        "journal": {
            "call": journal.call_id,
            "born": journal.born,
            "written": journal.written,
            "deadline": journal.deadline,
            "end": journal.end,
            "leg": journal.leg,
            "round": journal.round,
            "plan": journal.fingerprint,
            "build": journal.build,
            "version": journal.version,
            "traceparent": journal.traceparent,
            "entries": {key: _row(entry) for key, entry in journal.entries.items()},
            "asked": {key: _row(asked) for key, asked in journal.asked.items()},
            "computed": {key: kept.value for key, kept in journal.computed.items()},
            "authored": journal.authored,
            **({"intent": int(journal.chain)} if journal.chain else {}),
            **({"skipped": journal.skipped} if journal.skipped else {}),
        },
        "payload": vector.payload.hex(),
        "token": vector.token,
    }


def _from_json(stored: Mapping[str, Any]) -> Vector:
    fields = cast("dict[str, Any]", stored["journal"])
    journal = Journal(
        fields["call"],
        born=fields["born"],
        deadline=fields["deadline"],
        end=fields["end"],
        leg=fields["leg"],
        round=fields["round"],
        fingerprint=fields["plan"],
        build=fields["build"],
        version=fields["version"],
        entries={key: _entry(row) for key, row in fields["entries"].items()},
        asked={key: Asked(bytes.fromhex(row[0]), *row[1:]) for key, row in fields["asked"].items()},
        computed={key: Computed(value) for key, value in fields["computed"].items()},
        authored=fields["authored"],
        traceparent=fields["traceparent"],
        written=fields["written"],
        chain=Chain(fields.get("intent", Chain.NONE)),
        skipped=fields.get("skipped", 0),
    )
    return Vector(
        name=stored["name"],
        journal=journal,
        keys=tuple(stored["keys"]),
        **stored["request"],
        encrypt=stored["encrypt"],
        deflated=stored["deflated"],
        payload=bytes.fromhex(stored["payload"]),
        token=stored["token"],
    )


def _row(pinned: Entry | Asked) -> list[Any]:
    return [value.hex() if isinstance(value, bytes) else value for value in pinned]


def _entry(row: list[Any]) -> Entry:
    action, pin, data = row
    return Entry(Action(action), bytes.fromhex(pin), data)
