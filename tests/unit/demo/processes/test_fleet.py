"""The error of a failed instance has its output, and no process is left behind."""

import pytest

from roundtrip.demo.fleet import InstanceFailed, demo_fleet


def test_ending_instance_is_reported_with_its_last_output() -> None:
    with (
        demo_fleet(["ash"], key="short") as (ash,),
        pytest.raises(InstanceFailed, match=r"ash \(pid \d+\) has ended:(?s:.*)32"),
    ):
        ash.url()
