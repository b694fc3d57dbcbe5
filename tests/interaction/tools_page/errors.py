"""Errors of functions as clients see them."""

from typing import Final

from roundtrip import ToolError
from tests.interaction.tools_page.rows import Json, Make, Row, adding, taking


class OutOfStock(Exception):
    pass


def raising(error: Exception) -> Make:
    def tool() -> str:
        raise error

    return adding(tool)


MASKED: Final[Json] = {"mask_error_details": True}
CRASHES = [ValueError("secret 1"), OutOfStock("secret 1")]

ERRORS = [
    *(
        Row(
            says=f"a {type(error).__name__} becomes a failed result with its text",
            make=raising(error),
            sends={},
            fails="^Error executing tool tool: secret 1$",
            structured=None,
        )
        for error in CRASHES
    ),
    *(
        Row(
            says=f"the text of a {type(error).__name__} is masked",
            make=raising(error),
            options=MASKED,
            sends={},
            fails="^Error executing tool tool$",
        )
        for error in CRASHES
    ),
    *(
        Row(
            says=f"the text of a ToolError is told by a server with {options}",
            make=raising(ToolError("No more than 3.")),
            options=options,
            sends={},
            fails="^Error executing tool tool: No more than 3\\.$",
        )
        for options in ({}, MASKED)
    ),
    Row(
        says="wrong arguments are told of by a server that masks",
        make=taking(int),
        options=MASKED,
        sends={"value": "abc"},
        fails="valid integer",
    ),
]
