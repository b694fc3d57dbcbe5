"""The server of `roundtrip doctor --client`, visited by the SDK's client over HTTP, on both eras."""

import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final, Literal

import pytest
from mcp import Client
from mcp.client.extension import advertise
from mcp_types import ElicitRequestParams, ElicitResult, Implementation, ListRootsResult, TextContent

from roundtrip.channels.server_channels import UI_EXTENSION
from roundtrip.cli import main
from roundtrip.client.link_client import FormClient, LinkClient
from roundtrip.doctor.client_report import ClientReport, Trial
from roundtrip.doctor.client_server import TOOL, make_server
from roundtrip.known_clients import known_client
from roundtrip.testing import Era, served
from roundtrip.testing.networks.fleet import APP_SETTINGS
from tests.kit.hosts import ROOT, WAIT
from tests.kit.tables import check_each

pytestmark = pytest.mark.anyio

CODEX: Final = Implementation(name="codex-mcp-client", version="0.154.0")

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(era: Era) -> Connect:
    """Connect the SDK's client to the doctor's server."""

    @asynccontextmanager
    async def connected(**options: Any) -> AsyncGenerator[Client]:
        options = {"mode": era.value, "read_timeout_seconds": WAIT, **options}
        async with served(make_server(lambda report: None)) as url, Client(url, **options) as client:
            yield client

    return connected


def answering(action: Literal["accept", "decline", "cancel"]) -> Any:
    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action=action, content={"value": True} if action == "accept" else None)

    return answer


async def report_of(client: Client, **arguments: Any) -> tuple[str, dict[str, Any]]:
    result = await client.call_tool(TOOL, arguments)
    assert not result.is_error
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert result.structured_content is not None
    return block.text, result.structured_content


async def test_declared_questions_are_reported(connect: Connect, era: Era) -> None:
    async def roots(context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[])

    async with connect(elicitation_callback=answering("accept"), list_roots_callback=roots) as client:
        text, data = await report_of(client)
    can_be_asked = {"form": True, "URL": True, "sampling": False, "roots": True, "tasks": False, "apps": False}
    assert (data["can_be_asked"], data["asked"]) == (can_be_asked, "in a form")
    assert data["protocol"] == ("2026-07-28" if era is Era.RETRY else "2025-11-25")
    assert (data["max_rounds"], data["trial"]) == (10, None)
    assert "sampling   no: it did not declare sampling" in text
    assert "It gives up a call after 10 rounds" in text


async def test_client_that_declares_nothing_can_be_asked_nothing(connect: Connect, era: Era) -> None:
    async with connect() as client:
        text, data = await report_of(client, try_a_form=True)
    assert not any(data["can_be_asked"].values())
    assert data["trial"] is None
    assert "form       no: it did not declare form elicitation" in text
    if era is Era.LIVE:
        async with (
            served(make_server(lambda report: None), stateless_http=True) as url,
            Client(url, mode="legacy", elicitation_callback=answering("accept")) as client,
        ):
            without_session, _ = await report_of(client, try_a_form=True)
        assert "form       no" in without_session


ANSWERS: Final[dict[str, Any]] = {"elicitation_callback": answering("accept")}
CLIENTS: Final[list[tuple[type[Client], dict[str, Any], dict[str, Any] | None, str]]] = [
    (Client, {}, None, "on a page, by a link in the result"),
    (Client, {}, {}, "on a page, by a link in the result"),
    (Client, {}, APP_SETTINGS["apps"], "in an app in the conversation"),
    (LinkClient, ANSWERS, None, "on a page that the client shows"),
    (FormClient, ANSWERS, APP_SETTINGS["apps"], "in a form"),
    (FormClient, ANSWERS, APP_SETTINGS["app-forms"], "in a form that an app renders"),
]


@pytest.mark.parametrize(("kind", "options", "settings", "asked"), CLIENTS)
async def test_report_says_where_the_user_is_asked(
    kind: type[Client], options: dict[str, Any], settings: dict[str, Any] | None, asked: str, era: Era
) -> None:
    extensions = None if settings is None else [advertise(UI_EXTENSION, settings)]
    async with (
        served(make_server(lambda report: None)) as url,
        kind(url, mode=era.value, extensions=extensions, **options) as client,
    ):
        text, data = await report_of(client)
    assert f"asked      {asked}\n" in text
    assert data["asked"] == asked
    assert data["can_be_asked"]["apps"] == bool(settings)
    assert ("apps       no: it did not declare the extension io.modelcontextprotocol/ui" in text) != bool(settings)


@pytest.mark.parametrize(
    ("action", "said"), [("accept", "accepted with yes"), ("decline", "declined"), ("cancel", "cancelled")]
)
async def test_form_is_tried_and_a_hasty_answer_is_noted(
    connect: Connect, action: Literal["accept", "decline", "cancel"], said: str
) -> None:
    async with connect(elicitation_callback=answering(action), client_info=CODEX) as client:
        text, data = await report_of(client, try_a_form=True)
    assert data["trial"]["answer"] == said
    assert data["trial"]["seconds"] >= 0
    assert re.search(rf"tried      a form: {said} after \S+ s", text)
    assert data["quirks"] == ["accepts-unseen", "declines-unseen"]
    known = known_client(CODEX.name, CODEX.version)
    assert known is not None
    assert known.as_of is not None
    assert data["known_as_of"] == known.as_of.isoformat()
    assert "codex-mcp-client 0.154.0" in text


async def test_each_client_is_reported_once_and_with_each_trial(era: Era) -> None:
    reports: list[ClientReport] = []
    async with served(make_server(reports.append)) as url:
        for _ in range(2):
            async with Client(url, mode=era.value, elicitation_callback=answering("accept")) as client:
                await client.list_tools()
        async with Client(url, mode=era.value, client_info=CODEX) as client:
            await client.list_tools()
        assert [report.name for report in reports] == ["mcp", "codex-mcp-client"]
        async with Client(url, mode=era.value, elicitation_callback=answering("decline")) as client:
            await report_of(client, try_a_form=True)
    assert [report.trial is not None for report in reports] == [False, False, True]


async def test_names_cannot_write_to_the_terminal() -> None:
    async with (
        served(make_server(lambda report: None)) as url,
        Client(url, client_info=Implementation(name="\x1b[2J\u202enice" + "x" * 5000, version="1")) as client,
    ):
        text, data = await report_of(client)
    assert text.startswith("\\x1b[2J\\u202enice")
    assert "\x1b" not in text
    assert len(text.splitlines()[0]) < 500
    assert len(data["name"]) == 200


def test_wrong_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: list[str], complaint: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["doctor", *arguments])
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err

    check_each(
        [
            (["--client", "http://127.0.0.1:1/mcp"], "argument --client: not allowed with URL"),
            (["--stdio"], "argument --stdio: requires --client"),
            (["--client", "--port", "70000"], "argument --port: must be a whole number from 0 to 65535"),
            ([], "the following arguments are required: URL, or --client"),
        ],
        check,
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["doctor", "--client", "--port", str(taken.getsockname()[1])]) == 2
    assert "try another --port" in capsys.readouterr().err


def test_page_shows_a_report_as_it_is_printed() -> None:
    name, version = "codex-mcp-client", "0.171.0"
    report = ClientReport(
        name=name,
        version=version,
        revision="2025-06-18",
        declared={"elicitation": {"form": {}, "url": {}}},
        obstacles={
            "form": "",
            "URL": "",
            "sampling": "it did not declare sampling",
            "roots": "it did not declare roots",
            "tasks": "its revision is older than 2026-07-28",
            "apps": "it did not declare the extension io.modelcontextprotocol/ui",
        },
        known=known_client(name, version),
        trial=Trial("declined", 0.004),
        today=date(2026, 12, 1),
    )
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert "\n".join(report.lines()) in page, "\n".join(report.lines())
    in_a_year = "\n".join(replace(report, today=report.today + timedelta(days=365)).lines())
    assert "days ago, so it may no longer be true; what the client declares decides." in in_a_year
