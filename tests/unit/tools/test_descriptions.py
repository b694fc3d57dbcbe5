"""Docstrings as descriptions of tools and of their parameters."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from roundtrip import InvalidSignature, Server
from roundtrip.tools.registered import describe
from tests.kit.tables import check_each


def find(query: str, limit: int = 10, where: str = "", since: str = "") -> None:
    """Replaced by each test."""


def documented(docstring: str | None) -> Callable[..., Any]:
    def fn(query: str, limit: int = 10, where: str = "", since: str = "") -> None: ...

    fn.__doc__ = docstring
    return fn


GOOGLE = """
    Find books in the catalogue.

    Titles and authors are searched:

      - whole words first,
      - then parts of words.

    See https://example.org/search: it has the details.

    Args:
        query (str): What to look for,
            in any language.
        limit (int, optional): How many at most. Defaults to 10.
        where: One of:

            - shop: on a shelf
            - store: in the cellar
        nothing: No such parameter.

    Returns:
        The books, best first.

    Raises:
        If the catalogue is closed.

    Example:
        >>> find("moby: dick")
    """

NUMPY = """
    Find books in the catalogue.

    .. deprecated:: 2.1
        Use something else.

    Titles and authors are searched.

    Parameters
    ----------
    query, where : str
        What to look for,
        in any language.
    limit : int, optional
        How many at most.
    since

    Returns
    ---------
    list of str
        The books.

    Notes
    -----
    limit : is not applied yet.
    """

SPHINX = """
    Find books in the catalogue.

    :class:`Book` says what a book is.

    :param str query: What to look for,
        in any language.
    :param dict[str, int] | None limit: How many at most: none for all.
    :param where:
        In the shop or in the store.
    :type where: str
    :raises ValueError, TypeError: The catalogue is closed.
    :returns: The books.

    Prose below belongs to no field.
    """


STYLES: list[tuple[str, str, dict[str, str]]] = [
    (
        GOOGLE,
        "Find books in the catalogue.\n\nTitles and authors are searched:\n\n  - whole words first,\n"
        "  - then parts of words.\n\nSee https://example.org/search: it has the details.",
        {
            "query": "What to look for, in any language.",
            "limit": "How many at most. Defaults to 10.",
            "where": "One of:\n- shop: on a shelf\n- store: in the cellar",
        },
    ),
    (
        NUMPY,
        "Find books in the catalogue.\n\n.. deprecated:: 2.1\n    Use something else.\n\n"
        "Titles and authors are searched.",
        {
            "query": "What to look for, in any language.",
            "where": "What to look for, in any language.",
            "limit": "How many at most.",
        },
    ),
    (
        SPHINX,
        "Find books in the catalogue.\n\n:class:`Book` says what a book is.",
        {
            "query": "What to look for, in any language.",
            "limit": "How many at most: none for all.",
            "where": "In the shop or in the store.",
        },
    ),
]

PROSE = [
    "",
    "Find books.\nAnd more of them.",
    "Find books.\n\nNote: this is slow.\nExample: find('x') finds x.\n\nReturns: a list.",
    "Find books.\n\n    indented code\n\n- a: bullet\n- another: bullet",
    "Summary:\n    code below it\n\nMore: https://example.org:80/",
    "Find books.\n\n:warning: slow\n\n:class:`Book` is what it finds.",
    "Find books.\n\nUsage:\n    Give it a word.\n\nHint:\nNone.",
    "Find books.\n\nTable\n-----\nnot a section",
    "Find books.\n\n---\n\nA rule above.",
    "Args:\nnot indented, so no section",
    "Find books.\n\nArgs:\n    None.",
    "Find books.\n\n:param",
    # An entry that the parser cannot read loses nothing.
    "Find.\n\nArgs:\n    query: Words.\n    and no entry here",
]


def test_prose_without_sections_comes_through_unchanged() -> None:
    assert [prose for prose in PROSE if describe(documented(prose)) != (prose, {})] == []


SECTIONS: list[tuple[str, str, dict[str, str]]] = [
    ("\n    Args:\n        query: Words.", "", {"query": "Words."}),
    ("Find:\n\n      find('x')\n\n    Args:\n      query: Words.", "Find:\n\n  find('x')", {"query": "Words."}),
    ("Find.\nArgs:\n    query: Words.", "Find.", {"query": "Words."}),
    (":param query: Words.", "", {"query": "Words."}),
    ("Find.\n\nReturns:\n    dict: Of books.\n\nIn no order.", "Find.\n\nIn no order.", {}),
    (
        "Find.\n\nExample:\n    find('x')\n\nMore prose.\n\nArgs:\n    query: Words.",
        "Find.\n\nMore prose.",
        {"query": "Words."},
    ),
    ("Find.\n\nArgs:\n    query: Words.\n\nProse below.", "Find.", {"query": "Words."}),
    ("Find.\n\nArgs:\n    query: Words.\n\nNote:\n    limit: is no entry.", "Find.", {"query": "Words."}),
    ("Find.\n\nArgs:\n    *query: Words.\n    `limit`: Most.", "Find.", {"query": "Words.", "limit": "Most."}),
    ("Find.\n\nArgs:\n    query: Words.\n   \n    limit: Most.", "Find.", {"query": "Words.", "limit": "Most."}),
    ("Find.\n\nArgs:\n    query (dict[str, int] | None): At 10:30.", "Find.", {"query": "At 10:30."}),
    ("Find.\n\nParameters\n----\nquery : str\n    Words.", "Find.", {"query": "Words."}),
    ("Find.\n\nArgs:\n    query:\n    limit: Most.", "Find.", {"limit": "Most."}),
    ("Find.\n\nOther Parameters\n----------------\nquery\n    Words.", "Find.", {"query": "Words."}),
    ("Find.\n\nExamples\n--------\n>>> find('x')", "Find.", {}),
    ("Find.\n\n:param query: See\n:class:`Book`.", "Find.", {"query": "See :class:`Book`."}),
    ("Find.\n\n:param query: Words.\n:rtype: list", "Find.", {"query": "Words."}),
    ("Find.\n\nExample:\n    find('x')\n\n:param query: Words.", "Find.", {"query": "Words."}),
    # Two styles in one: the one with more of the parameters.
    (
        "Find.\n\nArgs:\n    query: Google.\n\n:param query: Sphinx.\n:param limit: Sphinx.",
        "Find.\n\nArgs:\n    query: Google.",
        {"query": "Sphinx.", "limit": "Sphinx."},
    ),
]


def test_docstring_is_split_into_text_and_parameters() -> None:
    def check(docstring: str, text: str, parameters: dict[str, str]) -> None:
        assert describe(documented(docstring)) == (text, parameters)

    check_each([*STYLES, *SECTIONS], check)


class Shelf:
    """Shelf of books."""

    def find(self, query: str) -> None:
        """Find on this shelf.

        Args:
            query: Words.
            self: Not seen.
        """

    @classmethod
    def open(cls, query: str) -> None:
        """Open a shelf."""

    @staticmethod
    def close(query: str) -> None:
        """Close a shelf."""


class Speaking:
    """Object with a described call."""

    def __call__(self, query: str) -> None:
        """Speak.

        :param query: Words.
        """


class Silent:
    """Object without a described call."""

    def __call__(self, query: str) -> None: ...


@dataclass
class Bare:
    size: int

    def __call__(self, query: str) -> None: ...


@functools.cache
def remembered(query: str) -> None:
    """Find once.

    Args:
        query: Words.
    """


def test_every_kind_of_callable_has_its_own_docstring() -> None:
    words = {"query": "Words."}
    own = functools.partial(find, limit=3)
    own.__doc__ = "Find three."

    assert describe(Shelf().find) == ("Find on this shelf.", words)
    assert describe(Shelf.open) == ("Open a shelf.", {})
    assert describe(Shelf.close) == ("Close a shelf.", {})
    assert describe(Speaking()) == ("Speak.", words)
    assert describe(Silent()) == ("Object without a described call.", {})
    assert describe(Shelf) == ("Shelf of books.", {})
    assert describe(Bare(3)) == ("", {})
    assert describe(remembered) == ("Find once.", words)
    assert describe(functools.partial(find, limit=3)) == ("Replaced by each test.", {})
    assert describe(functools.partial(functools.partial(Shelf().find))) == ("Find on this shelf.", words)
    assert describe(own) == ("Find three.", {})
    assert describe(lambda: None) == ("", {})
    assert describe(documented(None)) == ("", {})


def test_misspelled_hint_is_named_with_its_spelling() -> None:
    def look() -> None: ...

    with pytest.raises(InvalidSignature, match="no field 'readonlyHint'; did you mean 'readOnlyHint'"):
        Server("shop").add_tool(look, annotations={"readonlyHint": True})


@pytest.mark.parametrize("name", ["ctx", "context"])
def test_parameter_that_looks_like_the_context_is_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    functions: dict[str, Any] = {}
    exec(f"def count({name}) -> int: ...", functions)
    server = Server("shop", keys=["k" * 32])
    server.add_tool(functools.partial(functions["count"], **{name: 1}))
    assert "lets clients send" not in caplog.text
    server.add_tool(functions["count"], name="count it")
    assert f"tool 'count it' lets clients send '{name}'" in caplog.text
    assert f"write {name}: Context" in caplog.text
