"""Results are shown by their kind, and nothing in them can become a program or a path."""

import base64

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


def test_other_media_are_files() -> None:
    for mime_type in ("image/svg+xml", "text/html", "image/png;x,<b>", "", "application/pdf"):
        block = shown(ImageContent(data=DATA, mime_type=mime_type))
        assert (block["kind"], block.get("source")) == ("file", None)


def test_data_that_is_not_base64_is_text() -> None:
    assert shown(ImageContent(data='"><script>', mime_type="image/png"))["kind"] == "text"


NAMES = {
    "file:///a/notes.txt": "notes.txt",
    "file:///a/..%2F..%2Fetc%2Fpasswd": "passwd",
    "file:///a/..": "file",
    "file:///C:%5Cx%5Cevil.exe": "evil.exe",
    "file:///a/.bashrc": "bashrc",
    "data:,x": "x",
    f"file:///{'x' * 300}.txt": f"{'x' * 56}.txt",
}


def test_names_of_files_hold_no_path() -> None:
    texts = {uri: TextResourceContents(uri=uri, text="x") for uri in NAMES}
    blobs = {uri: BlobResourceContents(uri=uri, blob=DATA) for uri in NAMES}
    for resources in (texts, blobs):
        assert {uri: shown(EmbeddedResource(resource=one))["name"] for uri, one in resources.items()} == NAMES


def test_only_web_addresses_are_links() -> None:
    opens = {"https://a.example": True, "javascript:alert(1)": False, "file:///etc": False}
    assert {uri: shown(ResourceLink(name="x", uri=uri))["opens"] for uri in opens} == opens


def test_long_texts_are_shortened() -> None:
    """The page gets them again at each change."""
    text = str(shown(TextContent(text="x" * 100_007))["text"])
    assert text.endswith("x… (7 more characters)")
    structured = result_data(CallToolResult(content=[], structured_content={"rows": [[1]] * 20_000}))["structured"]
    assert len(structured) < 101_000
