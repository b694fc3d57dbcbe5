"""Files with servers, and complaints about them."""

from pathlib import Path
from typing import Any

import pytest

from roundtrip.cli.command import CommandFailed


def written(folder: Path, text: str, name: str = "target_shop.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def complaint(load: Any, target: str) -> str:
    with pytest.raises(CommandFailed) as failed:
        load(target)
    return str(failed.value)
