"""Measure how many changed lines fail a test: `python -m tests.mutation --share 0.15 --seed 1`.

mutmut makes the mutants and runs the tests that `[tool.mutmut]` in pyproject.toml names. This program takes a random
part of the mutants, the same for a seed, and counts the results by package. Survivors whose change cannot have an
effect are counted as `the same`.
"""

import argparse
import ast
import importlib
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

WORKPLACE = Path("mutants")
SQL: Final = ("BEGIN", "COMMIT", "CREATE", "DELETE", "INSERT", "PRAGMA", "ROLLBACK", "SELECT", "UPDATE")


def all_mutants(files: list[Path]) -> dict[Path, list[str]]:
    """Return the names of the mutants of each file."""
    mutation: Any = importlib.import_module("mutmut.mutation.file_mutation")
    names: Any = importlib.import_module("mutmut.utils.format_utils")
    return {
        file: [
            names.get_mutant_name(file, name)
            for name in mutation.mutate_file_contents(str(file), file.read_text()).mutant_names
        ]
        for file in files
    }


def outcomes(file: Path) -> dict[str, str]:
    """Return the result of each tried mutant of a file."""
    stats: Any = importlib.import_module("mutmut.stats")
    noted = json.loads((WORKPLACE / f"{file}.meta").read_text())["exit_code_by_key"]
    return {name: stats.status_by_exit_code[code] for name, code in noted.items() if code is not None}


def without_effect(file: Path) -> set[str]:
    """Return the names of a file's mutants that differ from the original only in what nothing can see."""
    by_name: dict[str, str] = {}
    for node in ast.walk(ast.parse((WORKPLACE / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name:
            name, node.name = node.name, ""
            by_name[name] = ast.dump(_Visible().visit(node))
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    return {
        f"{module}.{name}"
        for name, text in by_name.items()
        if not name.endswith("_orig") and text == by_name[f"{name.rpartition('__mutmut_')[0]}__mutmut_orig"]
    }


class _Visible(ast.NodeTransformer):
    """Drop what only type checkers read, the check of `zip`, and the case of SQL without literals."""

    @override
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "cast" and len(node.args) == 2:
            return node.args[1]
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = []
        return node

    @override
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        text = node.value
        if isinstance(text, str) and "'" not in text and text.lstrip().upper().startswith(SQL):
            return ast.Constant(text.upper())
        return node


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="which part of each file's mutants to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count-only", action="store_true", help="count what an earlier run has left")
    parser.add_argument("--survivors-only", action="store_true", help="try again what an earlier run has not killed")
    given = parser.parse_args()

    found: Any = importlib.import_module("mutmut.utils.file_utils")
    files = sorted(found.walk_mutatable_files())
    mutants = all_mutants(files)
    chosen = {
        file: sorted(random.Random(f"{given.seed}/{file}").sample(names, round(len(names) * given.share)))
        for file, names in mutants.items()
    }
    if not given.count_only:
        tried = [
            name
            for file, names in chosen.items()
            for name in names
            if not given.survivors_only or outcomes(file).get(name) != "killed"
        ]
        subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", str(given.workers), *tried], check=True
        )

    counts: dict[str, Counter[str]] = {}
    for file, names in chosen.items():
        room = counts.setdefault(file.parent.name, Counter())
        same = without_effect(file)
        noted = {
            name: "the same" if name in same and end == "survived" else end for name, end in outcomes(file).items()
        }
        room.update(all=len(mutants[file]), tried=len(names))
        room.update(noted.get(name, "not tried") for name in names)
        for name in names:
            if noted.get(name) != "killed":
                print(noted.get(name, "not tried"), name)
    for room, count in counts.items():
        print(room, dict(count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
