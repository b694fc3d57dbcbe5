"""Other arguments for a request, from its own and from any schema that a server sends."""

from typing import Any

from roundtrip.testing.attacks.requests import other_arguments


def test_other_arguments_are_of_the_schema_and_differ() -> None:
    schema = {
        "properties": {
            "film": {"type": "string", "enum": ["Dune", "Stalker"]},
            "copies": {"type": "integer"},
            "gift": {"type": "boolean"},
        }
    }
    others = dict(other_arguments({"film": "Dune", "copies": 2}, schema))
    assert others["film"][0] == "Stalker"
    assert others["copies"] == [3, 1]
    assert others["gift"] == [True]
    assert "Dune" not in others["film"]


def test_any_schema_is_read() -> None:
    schemas: list[dict[str, Any]] = [
        {},
        {"properties": {"film": True}},
        {"properties": [1]},
        {"properties": {"film": {"enum": 3}}},
    ]
    assert [dict(other_arguments({"film": "Dune"}, schema))["film"][0] for schema in schemas] == ["Dunex"] * 4
