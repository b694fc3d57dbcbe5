"""The names of the package: where they are from, and what a missing one says."""

import ast
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from mcp_types import LoggingLevel

import roundtrip
import roundtrip.ledger
from roundtrip.checking.checking import TIMEOUT
from roundtrip.cli import parsing
from roundtrip.cli.commands import call, graph
from roundtrip.client.legs import Era
from roundtrip.trace.drawings.machine import Format


@pytest.mark.parametrize("package", [roundtrip, roundtrip.ledger])
def test_names_are_imported_from_where_type_checkers_see_them(package: object) -> None:
    path = Path(str(vars(package)["__file__"]))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    names: list[str] = vars(package)["__all__"]
    assert set(names) <= set(dir(package))
    for name in names:
        assert getattr(package, name) is getattr(import_module(str(seen[name])), name)


def test_missing_name_is_reported() -> None:
    with pytest.raises(AttributeError, match=r"module 'roundtrip' has no attribute 'Serber'"):
        vars(roundtrip)["__getattr__"]("Serber")
    elsewhere = {"Serber": "cannot import name 'Serber'", "User": r"write: from roundtrip\.testing import User"}
    for name, told in elsewhere.items():
        with pytest.raises(ImportError, match=told):
            exec(f"from roundtrip import {name}", {})


def test_command_line_choices_match_the_code() -> None:
    assert vars(call)["_ERAS"] == tuple(era.name.lower() for era in Era if era is not Era.TASK)
    assert vars(call)["_LEVELS"] == get_args(LoggingLevel)
    assert vars(graph)["_FORMATS"] == tuple(Format)
    assert parsing.LEG_SECONDS == TIMEOUT
