"""The clocks of a call, as an author may set them."""

import math
import re
from typing import Any

import pytest

from roundtrip import Server


def test_invalid_timeout_is_rejected_with_its_argument_name() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ttl": "10"}, "ttl= must be a number of seconds, got '10'"),
        ({"max_age": (60,)}, "max_age= must be a number of seconds, got (60,)"),
        ({"ttl": True}, "ttl= must be a number of seconds, got True"),
        ({"ttl": 0}, "ttl=0 and max_age=3600.0"),
        ({"ttl": math.nan}, "ttl=nan and max_age=3600.0"),
        ({"ttl": 10, "max_age": 5}, "ttl no more than max_age"),
        ({"max_age": math.inf}, "finite seconds"),
    ]
    for options, told in wrong:
        with pytest.raises(ValueError, match=re.escape(told)):
            Server("limits", **options)
