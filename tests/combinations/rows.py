"""The combinations: a covering array over the features of a tool and what surrounds its calls.

Every two values of two factors come together in some row, as far as they can. An array is the same each time: its
generator orders by a hash. `--full` runs one array, and `--nightly` several, in which other three come together.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, cast

from roundtrip.testing import Era
from roundtrip.testing.user_defaults import NETWORKS, TASK_NETWORKS
from tests.combinations.features import FEATURES

__all__ = ["STORED", "Row", "made_from", "rows", "store"]

STORED: Final = Path(__file__).with_name("array.json")

HONEST: Final = "honest"
OF_TOOLS: Final = ("approval", "confirmation", "exactly_once", "timeout", "version")
"""Features that only tools have."""


@dataclass(frozen=True)
class Row:
    """One combination."""

    kind: Literal["tool", "prompt", "template"]
    features: tuple[str, ...]
    era: Era
    over: Literal["memory", "http", "stdio"]
    instances: Literal["one", "several"]
    ledger: Literal["memory", "sqlite", "redis", "postgres"]
    subject: Literal["nobody", "client", "ada"]
    trace: Literal["off", "hidden", "all"]
    errors: Literal["shown", "masked"]
    network: str
    host: Literal["roundtrip", "fastmcp", "sdk"] = "roundtrip"
    """The class of the server."""
    client: Literal["forms", "links", "nothing"] = "forms"
    """The kinds of questions that the client can show; pages show the others."""

    @property
    def id(self) -> str:
        """Return the name of the row on a command line."""
        rest = [str(getattr(self, one.name)) for one in fields(self) if one.name not in ("features", "era")]
        return "-".join([self.era.name.lower(), *rest, "+".join(self.features) or "plain"])

    @property
    def fits_one_process(self) -> bool:
        """Return True if the row needs no server of a store, no other process and no FastMCP."""
        return self.ledger in ("memory", "sqlite") and self.over != "stdio" and self.host != "fastmcp"

    @property
    def is_exactly_once(self) -> bool:
        return "exactly_once" in self.features and self.era is not Era.LIVE

    @property
    def task(self) -> Literal[True, "required"] | None:
        """Return the option `task=` of the tool."""
        return None if self.era is not Era.TASK else "required" if self.is_exactly_once else True

    @property
    def has_pages(self) -> bool:
        return self.client != "forms" or "approval" in self.features

    @property
    def is_honest(self) -> bool:
        return self.network == HONEST


_ENVIRONMENT: Final[dict[str, list[Any]]] = {
    "kind": ["tool", "prompt", "template"],
    "era": ["retry", "live", "task"],
    "over": ["memory", "http", "stdio"],
    "instances": ["one", "several"],
    "ledger": ["memory", "sqlite", "redis", "postgres"],
    "subject": ["nobody", "client", "ada"],
    "trace": ["all", "hidden", "off"],
    "errors": ["shown", "masked"],
    "network": [HONEST, *NETWORKS, *TASK_NETWORKS],
    "client": ["forms", "links", "nothing"],
    "host": ["roundtrip", "fastmcp", "sdk"],
}


def rows(array: int = 0) -> list[Row]:
    """Return the rows of one array; each number has its own array, which combines other pairs.

    Making one takes 20 seconds, so the first one is stored in a file, with a digest of what it was made from.
    """
    stored: dict[str, Any] = json.loads(STORED.read_text()) if array == 0 and STORED.is_file() else {}
    if stored.get("made_from") == made_from():
        return [_row(dict(zip(stored["factors"], values, strict=True))) for values in stored["rows"]]
    return [_row(one) for one in _array(array)]


def _factors() -> dict[str, list[Any]]:
    # Where any value will do, the first one is taken: half of the features, as rows with all of them take long.
    return _ENVIRONMENT | {name: [place % 2 == 1, place % 2 == 0] for place, name in enumerate(FEATURES)}


def _array(number: int) -> list[dict[str, Any]]:
    covertable: Any = import_module("covertable")
    return covertable.make(_factors(), salt=str(number) if number else "", constraints=_CONSTRAINTS)


def made_from() -> str:
    """Return a digest of the factors and their constraints."""
    return hashlib.sha256(json.dumps([_factors(), _CONSTRAINTS]).encode()).hexdigest()


def store() -> None:
    """Store the first array."""
    made = _array(0)
    factors = list(_factors())
    lines = ",\n".join(json.dumps([one[factor] for factor in factors]) for one in made)
    head = json.dumps({"made_from": made_from(), "factors": factors})
    STORED.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')


def _row(made: dict[str, Any]) -> Row:
    chosen = tuple(name for name in FEATURES if made[name])
    environment = {name: made[name] for name in _ENVIRONMENT}
    return Row(**cast("dict[str, Any]", environment | {"era": Era[made["era"].upper()], "features": chosen}))


def _where(name: str, value: Any, *then: dict[str, Any]) -> dict[str, Any]:
    """Require these conditions if a factor has a value."""
    return {
        "operator": "or",
        "conditions": [
            {"operator": "ne", "left": name, "value": value},
            {"operator": "and", "conditions": list(then)},
        ],
    }


def _is(name: str, value: Any) -> dict[str, Any]:
    return {"operator": "eq", "left": name, "value": value}


def _is_not(name: str, value: Any) -> dict[str, Any]:
    return {"operator": "ne", "left": name, "value": value}


_NOT_HOSTED: Final = [_is_not("era", "task"), _is_not("over", "stdio"), _is("gate", False), _is("version", False)]
"""What other classes than roundtrip's own reject, or have ways of their own for."""

_PLAIN: Final = [_is(name, False) for name in OF_TOOLS]
_PAGES: Final = [_is("subject", "ada"), _is("kind", "tool"), _is_not("over", "stdio"), _is("host", "roundtrip")]
"""Pages and approvals are for users who are known."""
_CONSTRAINTS: Final = [
    _where("client", "links", *_PAGES, _is_not("era", "task")),
    _where("client", "nothing", *_PAGES, _is_not("era", "task")),
    _where("approval", True, *_PAGES),
    _where("host", "fastmcp", *_NOT_HOSTED),
    _where("host", "sdk", *_NOT_HOSTED),
    # Requests of the live era are not delivered twice, nor to another instance, and cannot be attacked leg by leg.
    _where("era", "live", _is("network", HONEST), _is("instances", "one")),
    _where("era", "task", _is("kind", "tool"), _is_not("over", "stdio")),
    *(_where("network", name, _is("era", "task")) for name in TASK_NETWORKS),
    _where("kind", "prompt", *_PLAIN),
    _where("kind", "template", *_PLAIN),
    # Over HTTP the servers here know their caller, and in memory they are shown an access token.
    _where("subject", "client", _is("over", "memory")),
    # A process of its own has neither our trace nor our books.
    _where(
        "over",
        "stdio",
        _is("network", HONEST),
        _is("instances", "one"),
        _is("subject", "nobody"),
        _is("trace", "off"),
        _is("page", False),
        _is("ledger", "memory"),
    ),
]


if __name__ == "__main__":
    store()
