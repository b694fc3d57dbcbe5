"""Stores that `roundtrip ui` cannot show."""

from pathlib import Path

import pytest

from tests.interaction.tasks import workshops
from tests.kit.operated import operating


def test_store_in_the_memory_of_the_server_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    with operating(f"--server={workshops.__name__}:forgetful", str(tmp_path)) as ui:
        assert ui.end() == 130
        assert "roundtrip ui: tasks and approvals cannot be shown: The server's calls are in the memory" in ui.errors()
