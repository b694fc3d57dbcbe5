"""The clocks of a call, as an author may set them."""

import math
import re
from typing import Any

import pytest

from roundtrip import Server


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ttl": "10"}, "ttl='10': a number of seconds, not a str"),
        ({"max_age": (60,)}, "max_age=(60,): a number of seconds, not a tuple"),
        ({"ttl": True}, "ttl=True: a number of seconds, not a bool"),
        ({"ttl": 0}, "ttl=0 and max_age=3600.0"),
        ({"ttl": math.nan}, "ttl=nan and max_age=3600.0"),
        ({"ttl": 10, "max_age": 5}, "ttl no more than max_age"),
        ({"max_age": math.inf}, "finite seconds"),
    ],
)
def test_invalid_timeout_is_rejected_with_its_argument_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Server("limits", **options)
