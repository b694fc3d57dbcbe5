"""Results are shown by their kind, and nothing in them can become a program or a path."""

import base64

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from roundtrip.playground.results import result_data

DATA = base64.b64encode(b"bytes").decode()


def shown(block: ContentBlock) -> dict[str, object]:
    return result_data(CallToolResult(content=[block]))["blocks"][0]


def test_pictures_and_sounds_are_shown() -> None:
    assert shown(ImageContent(data=DATA, mime_type="image/png"))["source"] == f"data:image/png;base64,{DATA}"
    assert shown(AudioContent(data=DATA, mime_type="audio/wav"))["kind"] == "sound"


@pytest.mark.parametrize("mime_type", ["image/svg+xml", "text/html", "image/png;x,<b>", "", "application/pdf"])
def test_other_media_are_files(mime_type: str) -> None:
    block = shown(ImageContent(data=DATA, mime_type=mime_type))
    assert (block["kind"], block.get("source")) == ("file", None)


def test_data_that_is_not_base64_is_text() -> None:
    assert shown(ImageContent(data='"><script>', mime_type="image/png"))["kind"] == "text"


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///a/notes.txt", "notes.txt"),
        ("file:///a/..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("file:///a/..", "file"),
        ("file:///C:%5Cx%5Cevil.exe", "evil.exe"),
        ("file:///a/.bashrc", "bashrc"),
        ("data:,x", "x"),
        (f"file:///{'x' * 300}.txt", f"{'x' * 56}.txt"),
    ],
)
def test_names_of_files_hold_no_path(uri: str, name: str) -> None:
    text = TextResourceContents(uri=uri, text="x")
    blob = BlobResourceContents(uri=uri, blob=DATA)
    names = [shown(EmbeddedResource(resource=resource))["name"] for resource in (text, blob)]
    assert names == [name, name]


@pytest.mark.parametrize(
    ("uri", "opens"), [("https://a.example", True), ("javascript:alert(1)", False), ("file:///etc", False)]
)
def test_only_web_addresses_are_links(uri: str, opens: bool) -> None:
    assert shown(ResourceLink(name="x", uri=uri))["opens"] == opens


def test_long_texts_are_shortened() -> None:
    """The page gets them again at each change."""
    text = str(shown(TextContent(text="x" * 100_007))["text"])
    assert text.endswith("x… (7 more characters)")
    structured = result_data(CallToolResult(content=[], structured_content={"rows": [[1]] * 20_000}))["structured"]
    assert len(structured) < 101_000
