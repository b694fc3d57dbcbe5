"""An instance of the demo takes its key from the environment."""

import pytest

from roundtrip.demo.instance import KEY_VARIABLE, main


def test_an_instance_needs_the_key_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(SystemExit):
        main(["--name", "ash"])
    assert KEY_VARIABLE in capsys.readouterr().err
