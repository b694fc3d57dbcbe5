"""Tests are written where they can import the server."""

from pathlib import Path

from roundtrip.playground.writing import ServerPlace


def place(file: Path, module: str = "", *, is_file: bool = True) -> tuple[str, str]:
    found = ServerPlace.of(module, str(file), "server", is_file=is_file, is_ours=True)
    return found.module, found.folder


def test_file_is_imported_from_the_folder_above_its_package(tmp_path: Path) -> None:
    package = tmp_path / "shop" / "tools"
    package.mkdir(parents=True)
    assert place(package / "app.py") == ("app", str(package))
    (package / "__init__.py").write_text("")
    assert place(package / "app.py") == ("tools.app", str(tmp_path / "shop"))
    (tmp_path / "shop" / "__init__.py").write_text("")
    assert place(package / "app.py") == ("shop.tools.app", str(tmp_path))


def test_module_is_imported_by_its_own_name(tmp_path: Path) -> None:
    assert place(tmp_path / "shop" / "app.py", "shop.app", is_file=False) == ("shop.app", str(tmp_path))
    assert place(tmp_path / "shop" / "__init__.py", "shop", is_file=False) == ("shop", str(tmp_path))
    assert place(tmp_path / "app.py", "app", is_file=False) == ("app", str(tmp_path))


def test_place_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = ServerPlace("shop.app", "server", str(tmp_path), is_ours=False)
    written.write(tmp_path / "place.json")
    assert ServerPlace.read(tmp_path / "place.json") == written
