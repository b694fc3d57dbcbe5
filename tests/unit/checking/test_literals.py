"""JSON values become equal Python source of printable lines."""

import ast
import io
import math
import tokenize
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.checking.literals import WIDTH, UsedName, assignment, literal
from tests.kit.tables import check_each

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)

HOSTILE = [
    'a "quoted" text',
    "it's",
    "both \" and '",
    '"""',
    "'''",
    '"""; import os; os.abort()  #',
    "a\nb\r\nc\td",
    "back\\slash and \\n",
    "ends in a backslash\\",
    "{braces} {0} %s $x",
    "\x1b[31mred\x1b[0m \x00 \x07 \x7f \x9b",
    "\u2028 and \u2029 and \x85 and \x0b and \x0c",
    "\u202eturned around\u202c \ufeff",
    "\ud800 and \udfff alone",
    "déjà vu, 日本, 😀",
]


@settings(deadline=None)
@given(VALUES)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    assert ast.literal_eval(literal(value)) == value


def test_a_hostile_text_is_one_token_of_printable_characters() -> None:
    def check(text: str) -> None:
        source = assignment("TEXT", {"k" * 60: [text, {text: text}]})
        assert all(line.isprintable() for line in source.split("\n"))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        texts = [ast.literal_eval(token.string) for token in tokens if token.type == tokenize.STRING]
        assert texts == ["k" * 60, text, text, text]

    check_each(HOSTILE, check)


def test_literal_fits_one_line_or_is_spread() -> None:
    assert assignment("A", {"b": [1, 2.5, None, True]}) == 'A = {"b": [1, 2.5, None, True]}'
    exact = "x" * (WIDTH - len('A = [""]'))
    assert assignment("A", [exact]) == f'A = ["{exact}"]'
    assert assignment("A", [f"{exact}x"]) == f'A = [\n    "{exact}x",\n]'
    assert assignment("A", {}) == "A = {}"
    assert literal({"a": UsedName("YES"), "b": ["YES"]}) == '{"a": YES, "b": ["YES"]}'
    assert math.isnan(eval(literal(float("nan"))))
    assert eval(literal([float("inf"), float("-inf")])) == [math.inf, -math.inf]
