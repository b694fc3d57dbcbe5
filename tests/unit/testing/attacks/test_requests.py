"""Other arguments for a request, from its own and from any schema that a server sends."""

from typing import Any

import pytest

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


@pytest.mark.parametrize(
    "schema",
    [{}, {"properties": {"film": True}}, {"properties": [1]}, {"properties": {"film": {"enum": 3}}}],
    ids=["none", "true", "a list", "no choices"],
)
def test_any_schema_is_read(schema: dict[str, Any]) -> None:
    assert dict(other_arguments({"film": "Dune"}, schema))["film"][0] == "Dunex"
