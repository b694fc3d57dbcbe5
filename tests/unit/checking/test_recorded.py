"""Recorded calls from incomplete transcripts."""

import pytest

from roundtrip.checking.recorded import NotReplayable, recorded_call
from tests.kit.tables import check_each
from tests.kit.transcripts import began, call_of, ended


def test_legs_that_are_missing_are_named_however_many_they_are() -> None:
    def check(last: int, named: str) -> None:
        call = call_of(began(arguments={"value": {}}), ended(2, leg=last))
        with pytest.raises(NotReplayable) as refused:
            recorded_call(call)
        assert str(refused.value).startswith(named)

    check_each([(3, "leg 2 is"), (7, "leg 2, 3, 4, 5, 6 is"), (10**30, "leg 2, 3, 4, 5, 6, ... is")], check)
