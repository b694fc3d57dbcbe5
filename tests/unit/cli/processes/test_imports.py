"""Modules that commands import."""

import subprocess
import sys


def test_help_imports_neither_the_sdk_nor_what_mistakes_need() -> None:
    code = "import sys; from roundtrip.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'mcp', 'pydantic', 'difflib'} & sys.modules.keys()), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == "[]\n"
