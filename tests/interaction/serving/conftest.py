"""The project of a server that hosts start."""

from pathlib import Path

import pytest

from tests.interaction.serving.host_shop import SHOP


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "host_shop.py").write_text(SHOP)
    monkeypatch.chdir(folder)
    for name in ("ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    return folder
