"""Forms that an app renders, where both sides declare it (SEP-3118)."""

from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from roundtrip.channels.apps.app_messages import APP_META
from roundtrip.channels.server_channels import APP_MIME_TYPE, UI_EXTENSION
from tests.interaction.adapters.apps.hosting import APPS, CLASSES, FORMS_IN_APPS, App, continued, host, made, serving
from tests.kit.approving import Person
from tests.kit.page_users import client_of, text_of

pytestmark = pytest.mark.anyio

each_class = pytest.mark.parametrize("kind", CLASSES)
each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


class Forms:
    """A user who fills in forms, and notes the apps that they name."""

    def __init__(self) -> None:
        self.apps: list[Any] = []
        self.looks: list[Any] = []

    async def answer(self, _: object, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        ui: dict[str, Any] = (params.meta or {}).get("ui") or {}
        self.apps.append(ui.get("resourceUri"))
        shown: dict[str, Any] = (params.meta or {}).get(APP_META) or {}
        self.looks.append(shown.get("look"))
        return ElicitResult(action="accept", content={"value": 3} if params.requested_schema["properties"] else {})


@each_mode
@each_class
async def test_form_names_the_app(kind: str, mode: str) -> None:
    user = Forms()
    prefix = "c_" if kind == "mounted" else ""
    async with (
        serving(made(kind)) as url,
        host(url, mode=mode, declares=FORMS_IN_APPS, elicitation_callback=user.answer) as client,
    ):
        declared = (client.server_capabilities.extensions or {})[UI_EXTENSION]
        assert declared["elicitation"] == {}
        assert text_of(await client.call_tool(f"{prefix}book", {"film": "Solaris"})) == "Solaris, seat 3"
        assert text_of(await client.call_tool(f"{prefix}delete", {"film": "Solaris"})) == "Solaris is deleted"
        (address,) = set(user.apps)
        (document,) = (await client.read_resource(address)).contents
    assert len(user.apps) == 2
    look = {"name": "cinema", "accent": "#0b5cad", "dark_accent": "#76a4d1", "language": "en", "logo": None}
    assert user.looks == [look, look]
    assert document.mime_type == APP_MIME_TYPE


@each_mode
@pytest.mark.parametrize("declares", [None, APPS, {"elicitation": {}}, {**APPS, "elicitation": True}])
async def test_form_of_other_clients_names_none(declares: Any, mode: str) -> None:
    user = Forms()
    async with serving(made("server")) as url:
        connected = (
            client_of(url, "ann", mode=mode, elicitation_callback=user.answer)
            if declares is None
            else host(url, mode=mode, declares=declares, elicitation_callback=user.answer)
        )
        async with connected as client:
            assert text_of(await client.call_tool("book", {"film": "Solaris"})) == "Solaris, seat 3"
    assert user.apps == [None]


@each_mode
async def test_server_without_apps_declares_none(mode: str) -> None:
    user = Forms()
    server = made("server", pages={"app": False})
    async with (
        serving(server) as url,
        host(url, mode=mode, declares=FORMS_IN_APPS, elicitation_callback=user.answer) as client,
    ):
        assert UI_EXTENSION not in (client.server_capabilities.extensions or {})
        assert text_of(await client.call_tool("book", {"film": "Solaris"})) == "Solaris, seat 3"
    assert user.apps == [None]


async def test_app_of_a_host_with_forms_shows_an_approval() -> None:
    """On 2025-11-25, an approval is a result, also for a host that shows forms and links."""
    user = Forms()
    async with (
        serving(made("server")) as url,
        host(url, mode="legacy", declares=FORMS_IN_APPS, elicitation_callback=user.answer) as client,
    ):
        asked = await client.call_tool("refund", {"order": "A7"})
        app = App.of(client, asked)
        assert app.state["kind"] == "awaiting"
        await Person(url, "fred").decide("approve")
        await app.until("ended")
        assert await continued(client, asked) == "refunded A7"
    assert user.apps == []
