"""What is built has the whole package and nothing else, and is the same wherever it is built."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from importlib.metadata import metadata
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from roundtrip.cli import main
from tests.package.building import ROOT, SOURCES, Built, build, copy_sources, package_files
from tests.package.installed import installed_by

PERMISSIVE: Final = re.compile(r"MIT|BSD|Apache|PSF|ISC|Python Software Foundation|MPL-2.0|Unlicense", re.IGNORECASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built"))


def names_in(archive: Path) -> Iterator[str]:
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            yield from wheel.namelist()
    else:
        with tarfile.open(archive) as sdist:
            yield from (name.partition("/")[2] for name in sdist.getnames())


def metadata_of(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def test_a_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    names = set(names_in(built.wheel))
    described = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - described == package_files()
    assert "roundtrip/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in described)


def test_a_source_distribution_has_what_a_wheel_is_built_from(built: Built) -> None:
    assert set(names_in(built.sdist)) == {*package_files(), *SOURCES, "PKG-INFO"}


def test_another_folder_and_another_time_build_the_same_bytes(built: Built, tmp_path: Path) -> None:
    copy_sources(tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = build(tmp_path / "copy", tmp_path / "again")
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    # The wheel of a release comes from its source distribution.
    assert build(ROOT, tmp_path / "direct", "--wheel").wheel.read_bytes() == built.wheel.read_bytes()


def test_metadata_tell_readers_and_installers_the_truth(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    told = metadata_of(built.wheel)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"roundtrip {told['Version']}\n"
    assert (told["Name"], told["License-Expression"], told["License-File"]) == ("mcp-roundtrip", "MIT", "LICENSE")
    assert told["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in told.get_all("Classifier", ())
    # The page of a wheel has no pictures of the repository.
    assert re.findall(r"!\[[^]]*\]\((?!https://)", str(told.get_payload())) == []
    assert told["Description-Content-Type"] == "text/markdown"
    assert f"\n## [{told['Version']}]" in (ROOT / "CHANGELOG.md").read_text()
    checked = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(built.wheel), str(built.sdist)]
    ran = subprocess.run(checked, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout


def test_all_that_a_plain_install_brings_has_a_permissive_license() -> None:
    found: dict[str, str] = {}
    for name in installed_by("mcp-roundtrip", set()):
        told = metadata(name).json
        classified = [one for one in told.get("classifier", ()) if one.startswith("License ::")]
        found[name] = str(told.get("license_expression") or " ".join(classified) or told.get("license", ""))
    assert len(found) > 20
    assert not {name: text for name, text in found.items() if not PERMISSIVE.search(text) or "GPL" in text}
