"""Images, sounds, files and whole results: their blocks, types and mistakes."""

import base64
import mimetypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, ValidationError

from roundtrip.errors import NotSendable
from roundtrip.testing import Era
from roundtrip.tools.content import ToolResult
from roundtrip.tools.media import Audio, File, Image
from tests.kit.players import connect
from tests.kit.raised import raised
from tests.kit.tables import check_each

NOT_TEXT = b"\x89PNG\xff\x00"


class Report(BaseModel):
    title: str


def blob_of(block: EmbeddedResource) -> BlobResourceContents:
    assert isinstance(block.resource, BlobResourceContents)
    return block.resource


def mime_type(helper: Image | Audio | File) -> str | None:
    if isinstance(helper, Image):
        return helper.to_image_content().mime_type
    if isinstance(helper, Audio):
        return helper.to_audio_content().mime_type
    return blob_of(helper.to_resource_content()).mime_type


BY_EXTENSION: list[tuple[Any, str, str]] = [
    (Image, "a.png", "image/png"),
    (Image, "a.JPEG", "image/jpeg"),
    (Image, "a.webp", "image/webp"),
    (Image, "a.svg", "image/svg+xml"),
    (Image, "a.avif", "image/avif"),
    (Image, "a.txt", "application/octet-stream"),
    (Audio, "a.wav", "audio/wav"),
    (Audio, "a.m4a", "audio/mp4"),
    (Audio, "a.ogg", "audio/ogg"),
    (Audio, "a.webm", "audio/webm"),
    (Audio, "a.mp4", "audio/mp4"),
    (File, "a.pdf", "application/pdf"),
    (File, "a.md", "text/markdown"),
    (File, "a.tar.gz", "application/gzip"),
    (File, "a.ogg", "audio/ogg"),
    (File, "a.webm", "video/webm"),
    (File, ".hidden", "application/octet-stream"),
]


def test_type_of_a_file_follows_its_extension(tmp_path: Path) -> None:
    def check(helper: Any, name: str, expected: str) -> None:
        (tmp_path / name).write_bytes(NOT_TEXT)
        for path in (tmp_path / name, str(tmp_path / name)):
            assert mime_type(helper(path=path)) == expected

    check_each(BY_EXTENSION, check)
    for data in (
        Image(path=tmp_path / "a.png").to_image_content().data,
        Audio(path=tmp_path / "a.wav").to_audio_content().data,
        blob_of(File(path=tmp_path / "a.pdf").to_resource_content()).blob,
    ):
        assert base64.b64decode(data) == NOT_TEXT


def test_types_do_not_depend_on_the_machine_s_own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def knows_nothing(url: str, strict: bool = True) -> tuple[None, None]:
        return None, None

    def types() -> dict[str, str | None]:
        names = ("a.webp", "a.m4a", "a.flac", "a.ogg", "a.md", "a.png", "a.pdf")
        return {name: mime_type(File(data=b"", name=name)) for name in names}

    here = types()
    monkeypatch.setattr(mimetypes, "guess_type", knows_nothing)
    assert types() == here
    assert "application/octet-stream" not in here.values()


def test_the_format_of_data_is_named() -> None:
    images = {
        None: "image/png",
        "png": "image/png",
        "JPG": "image/jpeg",
        "svg": "image/svg+xml",
        ".webp": "image/webp",
        "jxl": "image/jxl",
        "image/x-custom": "image/x-custom",
    }
    assert {format: mime_type(Image(data=NOT_TEXT, format=format)) for format in images} == images
    sounds = {None: "audio/wav", "mp3": "audio/mpeg", "ogg": "audio/ogg"}
    assert {format: mime_type(Audio(data=NOT_TEXT, format=format)) for format in sounds} == sounds


FILES: list[tuple[dict[str, Any], str, str]] = [
    ({"format": "pdf"}, "application/pdf", "file:///resource.pdf"),
    ({"format": "text"}, "text/plain", "file:///resource.txt"),
    ({"format": "text/csv"}, "text/csv", "file:///resource.csv"),
    ({"format": "text/csv; charset=utf-8"}, "text/csv; charset=utf-8", "file:///resource.csv"),
    ({"format": "vnd.acme"}, "application/vnd.acme", "file:///resource.vnd.acme"),
    ({}, "application/octet-stream", "file:///resource.bin"),
    ({"name": "report", "format": "pdf"}, "application/pdf", "file:///report.pdf"),
    ({"name": "report"}, "application/octet-stream", "file:///report"),
    ({"name": "report.v2", "format": "pdf"}, "application/pdf", "file:///report.v2"),
    ({"name": "/srv/out/report.pdf"}, "application/pdf", "file:///srv/out/report.pdf"),
    ({"name": "a?b#c.csv"}, "text/csv", "file:///a%3Fb%23c.csv"),
]


def test_name_and_format_of_file_data_are_in_its_resource() -> None:
    def check(given: dict[str, Any], expected: str, uri: str) -> None:
        contents = blob_of(File(data=b"x", **given).to_resource_content())
        assert (contents.mime_type, contents.uri) == (expected, uri)

    check_each(FILES, check)


def test_format_and_name_outweigh_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "q3 report.txt"
    file.write_bytes(b"x")
    assert Image(path=file, format="gif").to_image_content().mime_type == "image/gif"
    assert blob_of(File(path=file, format="csv").to_resource_content()).mime_type == "text/csv"
    # The folder is not shown.
    assert blob_of(File(path=file).to_resource_content()).uri == "file:///q3%20report.txt"
    assert blob_of(File(path=file, name="sales.pdf").to_resource_content()).uri == "file:///sales.pdf"


def test_file_is_read_when_sent_and_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    image, file = Image(path="~/a.png"), File(path="~/a.png")
    with pytest.raises(FileNotFoundError):
        image.to_image_content()
    (tmp_path / "a.png").write_bytes(NOT_TEXT)
    assert base64.b64decode(image.to_image_content().data) == NOT_TEXT
    assert base64.b64decode(blob_of(file.to_resource_content()).blob) == NOT_TEXT


def test_path_and_data_exclude_each_other_and_one_is_needed() -> None:
    helpers: list[Any] = [Image, Audio, File]
    for helper in helpers:
        with pytest.raises(ValueError, match=r"must have path= or data=, got both"):
            helper(path="a.png", data=b"x")
        with pytest.raises(ValueError, match=r"must have path= .* or data="):
            helper()
        with pytest.raises(ValueError, match="got an empty string"):
            helper(path="")
        with pytest.raises(TypeError, match=r"must have bytes as data=, got str; encode text with \.encode\(\)"):
            helper(data="text")


def test_empty_data_is_data() -> None:
    assert Image(data=b"").to_image_content().data == ""
    assert Audio(data=b"").to_audio_content().data == ""
    assert blob_of(File(data=b"").to_resource_content()).blob == ""


def test_annotations_are_an_object_or_dict_and_replaceable() -> None:
    hints = {"audience": ["user"], "priority": 0.5}
    expected = Annotations(audience=["user"], priority=0.5)
    other = Annotations(priority=1.0)
    assert Image(data=b"", annotations=hints).to_image_content().annotations == expected
    assert Audio(data=b"", annotations=expected).to_audio_content().annotations == expected
    assert File(data=b"", annotations=hints).to_resource_content().annotations == expected
    replaced = Image(data=b"", annotations=hints).to_image_content(mime_type="image/x", annotations=other)
    assert (replaced.mime_type, replaced.annotations) == ("image/x", other)
    with pytest.raises(ValidationError, match="priority"):
        File(data=b"", annotations={"priority": 7})


@pytest.mark.anyio
async def test_images_and_sounds_work_on_the_sdk_s_server_too(era: Era) -> None:
    server = MCPServer("sdk")

    @server.tool()
    def show() -> list[SdkImage | SdkAudio]:
        return [Image(data=NOT_TEXT, format="jpg"), Audio(data=b"", format="mp3")]

    @server.tool()
    def draw() -> Image:
        return Image(data=NOT_TEXT, annotations={"priority": 1})

    async with connect(server, era) as client:
        image, audio = (await client.call_tool("show", {})).content
        (drawn,) = (await client.call_tool("draw", {})).content
    assert isinstance(image, ImageContent)
    assert isinstance(audio, AudioContent)
    assert isinstance(drawn, ImageContent)
    assert (image.mime_type, audio.mime_type) == ("image/jpeg", "audio/mpeg")
    assert drawn.annotations == Annotations(priority=1.0)


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


LINK = EmbeddedResource(type="resource", resource=TextResourceContents(uri="a:b", text="x"))


ANY_CONTENT: list[tuple[Any, list[Any]]] = [
    ("Found 3", [text("Found 3")]),
    ("", [text("")]),
    (["a", LINK, {"b": 2}], [text("a"), LINK, text('{\n  "b": 2\n}')]),
    (Report(title="Q3"), [text('{\n  "title": "Q3"\n}')]),
    (Image(data=b"i"), [Image(data=b"i").to_image_content()]),
]


def test_a_whole_result_takes_any_content() -> None:
    def check(content: Any, expected: list[Any]) -> None:
        result = ToolResult(content=content)
        assert result.content == expected
        sent = result.to_call_tool_result()
        assert sent.content == expected
        assert "structured_content" not in sent.model_fields_set

    check_each(ANY_CONTENT, check)


def test_structured_content_alone_is_the_content_too() -> None:
    sent = ToolResult(structured_content={"a": [1]}, meta={"ms": 3}).to_call_tool_result()
    assert sent.content == [text('{\n  "a": [\n    1\n  ]\n}')]
    assert (sent.structured_content, sent.meta) == ({"a": [1]}, {"ms": 3})
    # Empty parts count as given.
    assert ToolResult(structured_content={}).to_call_tool_result().structured_content == {}
    assert ToolResult(content=[]).to_call_tool_result().content == []
    assert ToolResult(content=[], structured_content={"a": 1}).content == []


def test_structured_content_is_a_dict_of_json_data() -> None:
    result = ToolResult(structured_content={"report": Report(title="Q3"), 1: None})  # pyright: ignore[reportArgumentType]
    assert result.structured_content == {"report": {"title": "Q3"}, "1": None}
    wrong: list[Any] = [[1], Report(title="Q3")]
    for one in wrong:
        with pytest.raises(TypeError, match=r"structured_content must be a dict, got \w+; .*model_dump"):
            ToolResult(content="x", structured_content=one)
    with pytest.raises(ValueError, match=r"must have content= or structured_content="):
        ToolResult(meta={"ms": 3})


LONE = "\ud800"


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


UNSENDABLE: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    (r"not UTF-8 text; .*base64", lambda: {"structured_content": {"a": NOT_TEXT}}),
    (r"use the result of its to_image_content\(\) instead", lambda: {"content": {"image": Image(data=b"")}}),
    (r"JSON cannot represent -inf", lambda: {"structured_content": {"a": [-float("inf")]}}),
    (r"more than 4300 digits", lambda: {"structured_content": {"a": 10**4300}}),
    (r"levels deep", lambda: {"content": "x", "structured_content": {"a": nested(200)}}),
    (r"not valid Unicode", lambda: {"content": ["fine", LONE]}),
    (r"not valid Unicode", lambda: {"content": {"a": LONE}}),
    (r"not valid Unicode", lambda: {"content": {LONE: 1}}),
    (r"not valid Unicode", lambda: {"content": TextContent(type="text", text="", _meta={"a": [LONE]})}),
    (r"not valid Unicode", lambda: {"content": File(data=b"", format=f"text/{LONE}")}),
]


def test_result_that_cannot_be_sent_is_rejected_when_made() -> None:
    def check(words: str, given: Callable[[], dict[str, Any]]) -> None:
        error = raised(ToolResult, **given())
        assert isinstance(error, NotSendable)
        assert re.search(words, str(error))

    check_each(UNSENDABLE, check)
    ToolResult(content="x", structured_content={"a": 10**4300 - 1, "b": nested(150)})
