"""`roundtrip new`: create a project with a server that asks questions, tests, a key and a CI workflow."""

import importlib.machinery
import json
import keyword
import re
import sys
from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.server.key_files import KEY_FILE_VARIABLE

_DESCRIPTION: Final = """\
Create a project in a new folder: a server with a tool that asks questions, its tests with a snapshot, a key that git
ignores, pyproject.toml, a README and an example CI workflow. Existing files are never overwritten."""

_EPILOG: Final = """\
NAME consists of lowercase letters and digits, with - or _ between them. The server's file has the same name, but with _
instead of -. This must not be the name of a standard or installed module.

exit codes:
  0  created
  2  not created; standard error has the reason"""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.ASCII)
_MAX_NAME_CHARS: Final = 40
_KEY_FILE: Final = "keys"
_FILES: Final = {
    "server.py": "{module}.py",
    "test_server.py": "test_{module}.py",
    "snapshot.txt": "__snapshots__/test_{module}/test_booking_asks_for_seats_and_a_row.txt",
    "conftest.py": "conftest.py",
    "pyproject.toml": "pyproject.toml",
    "gitignore": ".gitignore",
    "tests.yml": ".github/workflows/tests.yml",
    "README.md": "README.md",
}
"""Templates, mapped to their paths in the new project. Each template is a `.txt` file in the folder `project`."""
_TEST_PACKAGES: Final = ("pytest", "syrupy", "hypothesis")


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the project, its server and its folder")
    parser.add_switch("--here", "create the project in the current folder")


def _run(arguments: Namespace) -> int:
    name: str = arguments.name
    module = _module_of(name)
    folder = Path() if arguments.here else Path(name)
    texts = {folder / path.format(module=module): _text(template, name, module) for template, path in _FILES.items()}
    _make(folder, texts)
    print(_report(name, module, folder, texts))
    return 0


def _module_of(name: str) -> str:
    """Return the module name of a project's server.

    Raises:
        CommandFailed: The name is invalid.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARS:
        raise CommandFailed(
            f"the name must consist of lowercase letters and digits, with - or _ between them, and have at most "
            f"{_MAX_NAME_CHARS} characters, got {name!r}"
        )
    if keyword.iskeyword(module):
        raise CommandFailed(f"the name must not be a Python keyword, got {name!r}; no module can have this name")
    if module == "conftest" or module.startswith("test_"):
        raise CommandFailed(
            f"the name must not look like a test module, got {name!r}; pytest would collect the server as tests"
        )
    if module in sys.stdlib_module_names or _is_installed(module):
        raise CommandFailed(
            f"the name must not be an installed module's name, got {name!r}; the server's file would hide that module"
        )
    return module


def _is_installed(module: str) -> bool:
    current_folder = Path.cwd()
    other_folders = [path for path in sys.path if path and Path(path).resolve() != current_folder]
    spec = importlib.machinery.PathFinder.find_spec(module, other_folders)
    # The search also finds folders without `__init__.py`. Such a folder does no harm: the project's own module takes
    # precedence over it.
    return spec is not None and spec.loader is not None and spec.origin is not None


def _text(template: str, name: str, module: str) -> str:
    text = files("roundtrip.cli").joinpath("project", f"{template}.txt").read_text(encoding="utf-8")
    values = {
        "name": name,
        "module": module,
        "requirement": _requirement(),
        "requirement_for_tests": _requirement("testing"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def _requirement(extra: str = "") -> str:
    """Return a requirement that reinstalls this package from its source: an index, a repository or a folder."""
    from importlib.metadata import distribution

    installed = distribution("mcp-roundtrip")
    package = f"mcp-roundtrip[{extra}]" if extra else "mcp-roundtrip"
    text = installed.read_text("direct_url.json")
    if text is None:
        return f"{package}>={installed.version}"
    origin: dict[str, Any] = json.loads(text)
    url: str = origin["url"]
    if (repository := origin.get("vcs_info")) is not None:
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    if "subdirectory" in origin:
        url = f"{url}#subdirectory={origin['subdirectory']}"
    return f"{package} @ {url}"


def _make(folder: Path, texts: dict[Path, str]) -> None:
    """Write all files, or none if one of them already exists.

    Raises:
        CommandFailed: A file exists, or cannot be written.
    """
    from roundtrip.cli.commands.keys import write_new_key

    if folder.is_file():
        raise CommandFailed(f"{str(folder)!r} is a file; choose another name")
    key_file = folder / _KEY_FILE
    if existing := [str(path) for path in (*texts, key_file) if path.exists() or path.is_symlink()]:
        raise CommandFailed(
            f"{', '.join(existing)} {'exists' if len(existing) == 1 else 'exist'}, and nothing was written; choose "
            "another name, or another folder"
        )
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Open each file in exclusive mode, which does not overwrite a file that another program has just created.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename!r}: {error.strerror}") from error
    write_new_key(key_file)


def _report(name: str, module: str, folder: Path, texts: dict[Path, str]) -> str:
    paths = [str(path) for path in (*texts, folder / _KEY_FILE)]
    commands = [
        *([] if folder == Path() else [f"cd {folder}"]),
        *([] if _can_test() else ['pip install -e ".[test]"']),
        f"roundtrip dev {module}.py",
        "pytest",
        f"{KEY_FILE_VARIABLE}={_KEY_FILE} roundtrip serve {module}.py --reload",
    ]
    return "\n".join(
        [f"Created project {name}:", *(f"  {line}" for line in paths), "Next:", *(f"  {line}" for line in commands)]
    )


def _can_test() -> bool:
    return all(importlib.machinery.PathFinder.find_spec(package) is not None for package in _TEST_PACKAGES)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
