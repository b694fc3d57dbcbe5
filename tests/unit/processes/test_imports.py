"""Imports by occasion. The tests count modules, as times differ between machines."""

import re
import subprocess
import sys
from typing import Final

import pytest

from benchmarks.changes_of_file import MAX_CHANGES, MAX_FILES
from benchmarks.hello_modules import SERVERS, HelloServer, loaded
from tests.kit.sources import UNUSED

MISUSES: Final = """
import sys
from roundtrip.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        print(line, ended.code, *sorted({"anyio", "mcp", "mcp_types", "pydantic"} & set(sys.modules)), file=sys.stderr)
"""

THREADS: Final = """
import threading
import roundtrip
names = roundtrip.__all__
together = threading.Barrier(16)
failures = []
def load(first):
    together.wait()
    try:
        for name in [*names[first:], *names[:first]]:
            getattr(roundtrip, name)
    except Exception as error:
        failures.append(repr(error))
threads = [threading.Thread(target=load, args=(first,)) for first in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*failures)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_hello_server_loads_few_modules(server: HelloServer) -> None:
    lines = loaded(server)
    assert len(lines) <= server.modules, sorted(lines)
    assert sum(lines.values()) <= server.lines, sorted(lines.items(), key=lambda item: -item[1])
    assert server is not SERVERS["plain"] or not lines.keys() & UNUSED


def test_question_leads_through_few_files() -> None:
    printed = run("from benchmarks.changes_of_file import main; main()").stdout
    changes, files = (int(number) for number in re.findall(r"(\d+) (?:changes|files)", printed))
    assert changes <= MAX_CHANGES, printed
    assert files <= MAX_FILES, printed


def test_the_package_alone_imports_nothing_else() -> None:
    program = "import sys, roundtrip; print('mcp' in sys.modules, 'roundtrip.server' in sys.modules)"
    assert run(program).stdout.split() == ["False", "False"]


def test_serving_with_one_worker_loads_no_relay() -> None:
    program = "import sys, roundtrip.cli.running.serve; print('roundtrip.serving.relay' in sys.modules)"
    assert run(program).stdout.split() == ["False"]


USES: Final = [
    ("--help", 0),
    ("--version", 0),
    ("", 2),
    ("bogus", 2),
    ("call", 2),
    ("call --help", 0),
    ("check", 2),
    ("demo --bogus", 2),
    ("doctor", 2),
    ("graph --format bogus", 2),
    ("keys bogus", 2),
    ("serve --help", 0),
    ("trace --help", 0),
    ("trace bogus", 2),
]


def test_help_and_mistakes_need_no_sdk() -> None:
    told = run(MISUSES, *(line for line, _ in USES)).stderr.splitlines()
    for line, code in USES:
        assert f"{line} {code}" in told


def test_everything_can_be_imported_without_extras() -> None:
    blocked = "for name in ('docket', 'redis', 'asyncpg'): sys.modules[name] = None"
    program = f"import sys\n{blocked}\nfrom roundtrip import *\nfrom roundtrip.ledger import *"
    told = run(f"{program}\nprint(Server.__name__, SqliteLedger.__name__, 'DocketEngine' in globals())")
    assert told.stdout.split() == ["Server", "SqliteLedger", "False"], told.stderr


def test_threads_may_be_the_first_to_use_different_names() -> None:
    assert run(THREADS).stdout.split() == []
