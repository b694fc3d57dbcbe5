"""The error of a failed instance has its output, and no process is left behind."""

import pytest

from roundtrip.demo.fleet import InstanceFailed, demo_fleet
from roundtrip.demo.instance import KEY_VARIABLE, main


def test_ending_instance_is_reported_with_its_last_output() -> None:
    with (
        demo_fleet(["ash"], key="short") as (ash,),
        pytest.raises(InstanceFailed, match=r"ash \(pid \d+\) has ended:(?s:.*)32"),
    ):
        ash.url()


def test_an_instance_needs_the_key_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(SystemExit):
        main(["--name", "ash"])
    assert KEY_VARIABLE in capsys.readouterr().err
