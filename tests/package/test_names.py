"""The package is installed as `mcp-roundtrip`, because `roundtrip` is another project on the package index."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.package.building import ROOT, package_files

OURS: Final = r"(?<![\w./@-])roundtrip"
WRONG: Final = re.compile(
    rf"""pip\ install\b[^\n&|;#]*?[ ]['"]?{OURS}(?![\w./-])"""  # an installation
    rf"""|{OURS}(?:\[[a-z]+(?:,[a-z]+)*\]|\s*[=~<>!]=\s*\d|\s@\s)"""  # a requirement
    rf"""|(?:version|distribution|requires)\(['"]roundtrip['"]\)"""  # a look at what is installed
    r"""|^roundtrip$""",  # a line of requirements.txt
    re.VERBOSE | re.MULTILINE,
)
TEXTS: Final = {".md", ".py", ".toml", ".txt", ".yaml", ".yml"}


def texts() -> Iterator[Path]:
    for folder in ("docs", "examples", "benchmarks", "specs", "tests"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)
    yield from (ROOT / name for name in package_files() if Path(name).suffix in TEXTS)
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml")


SPELLINGS: Final = {
    "pip install roundtrip": True,
    "RUN pip install --no-cache-dir roundtrip": True,
    "pip install 'roundtrip[pages]' authlib": True,
    'dependencies = ["roundtrip>=0.1"]': True,
    "a\nroundtrip\nb": True,
    "pip install 'mcp-roundtrip[pages]' authlib": False,
    'pip install -q -e ".[test]" && .venv/bin/roundtrip demo': False,
    'pip install -q "../roundtrip[testing]"': False,
    "`roundtrip demo` shows a call": False,
}


def test_the_pattern_finds_the_other_project() -> None:
    assert {text: WRONG.search(text) is not None for text in SPELLINGS} == SPELLINGS


def test_no_text_names_the_other_project() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in texts()
        if path != Path(__file__) and "node_modules" not in path.parts
        for match in WRONG.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
