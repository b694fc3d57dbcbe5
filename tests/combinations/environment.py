"""Environments of calls: servers with their ledger, trace and keys, a client, and the network between them."""

import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mcp.client.stdio import StdioServerParameters
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from roundtrip import Approvals, Pages, Recorder, Server, tool
from roundtrip.adapters.finding import AnyServer
from roundtrip.install import install
from roundtrip.ledger import Ledger, MemoryLedger, PostgresLedger, RedisLedger, SqliteLedger
from roundtrip.system import System
from roundtrip.testing import Approver, Conversation, Eavesdrop, Era, Hop, Network, User
from roundtrip.testing.networks.fleet import KEYS
from roundtrip.testing.user_defaults import NETWORKS, TASK_NETWORKS
from tests.combinations.agency import Agency
from tests.combinations.features import FEATURES, Feature, compose
from tests.combinations.rows import HONEST, Row
from tests.interaction.secrecy.markers import everything_logged
from tests.kit.hosts import stdio

__all__ = ["ROW_VARIABLE", "Environment", "Played", "make", "make_over_stdio", "play", "serving"]

ROW_VARIABLE: Final = "ROUNDTRIP_TESTS_FEATURES"
_NIGHTS: Final = 3
_HOSTS: Final = ("fastmcp", "mcp", "sse_starlette")
_ROUNDS: Final = 30
_CLIENTS: Final[Mapping[str, Any]] = {"forms": None, "links": "links", "nothing": "no-elicitation"}
_SUBJECTS: Final = {"client": None, "ada": "ada"}


@dataclass
class Played:
    """Result of a row: one call as the row says, and its traces in log, ledger and transcript."""

    row: Row
    environment: "Environment"
    call: Conversation
    logged: list[str]
    rejected: Conversation | None
    """A call with arguments that do not fit, made before it, where that costs little."""
    logged_of_rejected: list[str]


@dataclass
class Environment:
    """Servers of one row, and the connection of their user."""

    row: Row
    folder: Path
    server_of: Callable[[str], str]
    """Returns the address of a Redis or of a PostgreSQL."""
    agency: Agency = field(default_factory=Agency)
    _ledger: Ledger | None = None

    def __post_init__(self) -> None:
        self.agency.user = self.who
        self.features: Sequence[Feature] = [FEATURES[name](self.agency) for name in self.row.features]

    @property
    def who(self) -> str | AccessToken | None:
        """Return the user whom a server knows; None if it knows none, or only the client."""
        if self.row.subject != "ada":
            return None
        return "ada" if self._names_users else _access_token("ada")

    @property
    def _names_users(self) -> bool:
        """Return True if the server names its users itself. Otherwise it is shown an access token."""
        return self.row.subject == "ada" and (self.row.over == "http" or self.row.has_pages)

    @property
    def transcript(self) -> Path:
        return self.folder / "calls.jsonl"

    @property
    def name(self) -> str:
        """Return a name that no other environment has."""
        return f"{self.folder.parent.name}_{self.folder.name}"[-40:].lower()

    @property
    def ledger(self) -> Ledger:
        """Return the ledger that all instances share."""
        if self._ledger is None:
            kind = self.row.ledger
            self._ledger = (
                # By the time of day, so that a test's clock is everybody's.
                MemoryLedger(system=System(monotonic=lambda: time.time()))
                if kind == "memory"
                else SqliteLedger(self.folder / "calls.db")
                if kind == "sqlite"
                else RedisLedger(self.server_of(kind), prefix=self.name)
                if kind == "redis"
                else PostgresLedger(self.server_of(kind), schema=self.name)
            )
        return self._ledger

    async def aclose(self) -> None:
        """Close the shared data of the instances."""
        if self._ledger is not None:
            await self._ledger.aclose()
            self._ledger = None

    def make(self, keys: Sequence[bytes] = KEYS[:1], **options: Any) -> AnyServer:
        """Make one more instance."""
        if self.row.trace != "off":
            reveal = "all" if self.row.trace == "all" else ()
            options["trace"] = Recorder(self.transcript, reveal=reveal)
        if self._names_users:
            options["principal"] = _is_ada
        masks = self.row.errors == "masked"
        if self.row.has_pages:
            options["pages"] = Pages(base_url="https://agency.example", authenticate=_reader, wait=0.2)
            options["approvals"] = Approvals(groups={"fay": ["desk"]})
        if self.row.host != "roundtrip":
            made = self._host(masks=masks, keys=list(keys), **options)
            register_at_host(made, self.row.kind, self.agency, self.features)
            return made
        server = Server[Any]("agency", keys=list(keys), ledger=self.ledger, mask_error_details=masks, **options)
        register(server, self.row.kind, self.agency, self.features, task=self.row.task)
        return server

    def _host(self, *, masks: bool, **options: Any) -> AnyServer:
        """Make a server of another class, with roundtrip on it."""
        if self.row.host == "sdk":
            server = MCPServer[Any]("agency")
            install(server, ledger=self.ledger, **options)
            return server
        # The first tier has no FastMCP.
        fastmcp: Any = import_module("fastmcp")
        adapter: Any = import_module("roundtrip.fastmcp")
        made = fastmcp.FastMCP("agency", mask_error_details=masks)
        adapter.install(made, ledger=self.ledger, **options)
        return made

    def user(self, *, era: Era | None = None, network: Sequence[Network | str] = ()) -> User:
        """Return a user who answers the features' questions."""
        answers = {pattern: answer for feature in self.features for pattern, answer in feature.answers.items()}
        visits = {pattern: visit for feature in self.features for pattern, visit in feature.visits.items()}
        return User(
            self.target(),
            answers,
            visits=visits,
            era=era or self.row.era,
            network=list(network),
            over="http" if self.row.over == "http" else "memory",
            principal=_access_token(_SUBJECTS[self.row.subject]) if self._shows_token else None,
            allow_error=True,
            allow_unused=True,
            # All features together ask more often than real clients would let them.
            max_rounds=_ROUNDS,
            client=_CLIENTS[self.row.client],
            page_headers={"cookie": "reader=ada"} if self.row.has_pages else {},
            approver=Approver({"desk": "approve"}, headers={"cookie": "reader=fay"}) if self.row.has_pages else (),
        )

    @property
    def _shows_token(self) -> bool:
        return self.row.subject != "nobody" and self.row.over == "memory" and not self._names_users

    def target(self) -> Any:
        """Return the target that a user connects to."""
        if self.row.over != "stdio":
            return self.make
        command = stdio(make_over_stdio)
        told = {ROW_VARIABLE: ",".join([self.row.kind, self.row.errors, *self.row.features])}
        return StdioServerParameters(command=command.command, args=command.args, cwd=command.cwd, env=told)

    def network(self) -> list[Network]:
        """Return the network of the row's requests."""
        through: list[Network] = [Hop()] if self.row.instances == "several" else []
        if self.row.network == "eavesdrop":
            through.append(Eavesdrop(self.agency.secrets))
        elif self.row.network != HONEST:
            through.append({**NETWORKS, **TASK_NETWORKS}[self.row.network]())
        return through

    async def call(self, user: User, *, nights: Any = _NIGHTS) -> Conversation:
        """Make one whole call by a user."""
        arguments: dict[str, Any] = {"traveller": self.agency.traveller, "nights": nights}
        if self.row.kind == "tool":
            return await user.call("book", arguments)
        if self.row.kind == "prompt":
            return await user.get_prompt("book", {name: str(value) for name, value in arguments.items()})
        return await user.read_resource(f"trip://{self.agency.traveller}/{nights}")

    async def call_in_vain(self) -> Conversation:
        """Call with invalid arguments."""
        return await self.call(self.user(), nights=self.agency.plant("argument"))


def _access_token(subject: str | None) -> AccessToken:
    return AccessToken(token="of-the-client", client_id="agency-app", scopes=[], subject=subject)


async def _reader(request: Request) -> str | None:
    return request.cookies.get("reader")


def _is_ada(request: object) -> str:
    del request
    return "ada"


def register(server: Server[Any], kind: str, agency: Agency, features: Sequence[Feature], *, task: Any = None) -> None:
    """Register a booking with some features."""
    options: dict[str, Any] = {} if task is None else {"task": task}
    for feature in features:
        options |= feature.options
    book = compose(agency, features)
    if kind == "prompt":
        server.prompt(name="book", **options)(book)
    elif kind == "template":
        server.resource("trip://{traveller}/{nights}", name="book", **options)(book)
    else:
        if "version" in options:
            server.add_tool(_book_as_before, name="book", version="1.0")
        server.add_tool(book, name="book", **options)


def register_at_host(server: Any, kind: str, agency: Agency, features: Sequence[Feature]) -> None:
    """Register a booking with some features on a server of another class."""
    options: dict[str, Any] = {}
    for feature in features:
        options |= feature.options
    book: Any = compose(agency, features)
    if options:
        book = tool(**options)(book)
    if kind == "prompt":
        server.prompt(name="book")(book)
    elif kind == "template":
        server.resource("trip://{traveller}/{nights}", name="book")(book)
    else:
        server.tool(name="book")(book)


def _book_as_before(traveller: str) -> str:
    """Book a trip."""
    return f"a night for {traveller}"


def make_over_stdio() -> Server[Any]:
    """Make the server of a separate process; an environment variable names the features."""
    kind, errors, *names = os.environ[ROW_VARIABLE].split(",")
    agency = Agency()
    server = Server[Any]("agency", keys=list(KEYS[:1]), ledger=MemoryLedger(), mask_error_details=errors == "masked")
    register(server, kind, agency, [FEATURES[name](agency) for name in names if name])
    return server


async def play(environment: Environment) -> Played:
    """Make the call of a row, and collect the log."""
    hosted = environment.row.host != "roundtrip"
    # Other classes log what they reject, and at level DEBUG what they are sent.
    with everything_logged(without=lambda record: hosted and record.name.startswith(_HOSTS)) as logged_of_rejected:
        rejected = await environment.call_in_vain() if environment.row.over == "memory" else None
    with everything_logged(
        without=lambda record: hosted and record.name.startswith(_HOSTS) and record.levelno < logging.WARNING
    ) as logged:
        call = await environment.call(environment.user(network=environment.network()))
    environment.agency.plant.note("token", call.tokens)
    for question in call.questions:
        environment.agency.plant.note_tickets(question.url or "")
    return Played(environment.row, environment, call, logged, rejected, logged_of_rejected)


_serving: list[Environment] = []
"""The environment of the present row, for commands that load a server."""


@contextmanager
def serving(environment: Environment) -> Generator[None]:
    """Let `make` return servers of this environment."""
    _serving.append(environment)
    try:
        yield
    finally:
        _serving.remove(environment)


def make() -> AnyServer:
    """Make an instance of the row's server."""
    return _serving[-1].make()
