"""What the kit imports, and how it works where optional packages are missing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kit.inner_pytest import CINEMA, QUIET
from tests.kit.waiting import WAIT

pytest_plugins = ["pytester"]

UNUSED: Final = """
import sys
import pytest
exit_code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "roundtrip.pytest_plugin", *sys.argv[1:]])
print("exit code", int(exit_code))
print(*sorted(sys.modules))
"""


def test_unused_plugin_imports_two_small_modules(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", UNUSED, "--rootdir=.", "test_one.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT, check=True
    )
    *_, exit_code, modules = done.stdout.splitlines()
    assert exit_code == "exit code 0"
    imported = set(modules.split())
    assert {name for name in imported if name.startswith("roundtrip")} == {"roundtrip", "roundtrip.pytest_plugin"}
    assert not imported & {"anyio", "hypothesis", "mcp", "mcp_types", "pydantic", "syrupy"}


def test_missing_syrupy_fails_only_the_fixtures_with_advice(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        CINEMA
        + """
async def test_booking(call_snapshot):
    pass

async def test_that_the_rest_works():
    assert (await User(server, {"seat": "back"}).call("book", film="Solaris")).legs == 2
""",
    )
    # That is how an import finds that there is none. jinja2 belongs to question pages.
    pytester.makeconftest("import sys\nsys.modules['syrupy'] = sys.modules['jinja2'] = None")
    # In a process of its own, as in this one all that could miss it is imported already.
    result = pytester.runpytest_subprocess(*QUIET, "-p", "no:syrupy")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*call_snapshot needs syrupy: pip install 'mcp-roundtrip[[]testing[]]'*"])
