"""URLs that pages may have."""

import pytest

from roundtrip import ElicitUrl
from tests.kit.raised import raised

ADDRESSES = (
    "https://shop.example/pay?t=1",
    "HTTP://shop.example",
    "http://localhost:8000/x",
    "https://[::1]/x",
    "https://müller.example/ä",
)
OTHERS = (
    "javascript:alert(1)",
    "JavaScript://shop.example/%0aalert(1)",
    "data:text/html,<script>",
    "file:///etc/passwd",
    "vscode://install",
    " https://shop.example",
    "java\nscript:alert(1)",
    "ht\ttps://shop.example",
    "\x01javascript:alert(1)",
    "https:\\\\shop.example",
    "https://shop.example\\@evil.example",
    "https:shop.example",
    "https://",
    "https:///pay",
    "https://?x",
    "//shop.example/pay",
    "/pay",
    "shop.example",
    "",
)


def test_a_page_is_a_web_address() -> None:
    assert [ElicitUrl("Pay.", url).url for url in ADDRESSES] == list(ADDRESSES)


def test_anything_else_is_rejected_and_not_repeated() -> None:
    told = {url: str(raised(ElicitUrl, "Pay.", url)) for url in OTHERS}
    assert [url for url, text in told.items() if "the url of a page must" not in text] == []
    repeated = ("script", "passwd", "evil", "alert")
    assert [text for text in told.values() if any(part in text for part in repeated)] == []


def test_an_author_may_allow_another_scheme_in_place_of_these() -> None:
    assert ElicitUrl("Open.", "myapp://login", schemes=["MyApp"]).url == "myapp://login"
    with pytest.raises(ValueError, match="must begin with myapp:, and"):
        ElicitUrl("Open.", "https://shop.example", schemes=["myapp"])
