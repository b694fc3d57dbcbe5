"""The doctor's probe run: it sends requests to a service's addresses, and collects observations.

Every request uses a new connection, so that a load balancer can choose an instance for each request. Some requests run
concurrently. Otherwise, if several workers share a socket, the same worker could get every request.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, TypeVar
from urllib.parse import urljoin

import anyio
import httpx2
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    TextContent,
)
from pydantic import TypeAdapter, ValidationError

from roundtrip.client.failures import innermost, quiet
from roundtrip.client.legs import Era, LegRequest, callbacks, drive, within
from roundtrip.client.targets import UNCOMPRESSED, Target, TooLarge, size_limit
from roundtrip.doctor.facts import (
    Endpoint,
    InstanceReport,
    LedgerCheck,
    LiveQuestion,
    Observed,
    Obstacle,
    ProbeCallResult,
    ProbedCall,
    ProbedInstance,
    ProbeOutcome,
)
from roundtrip.legs.requests import is_token_rejection
from roundtrip.switches import PROBE_TOOL

T = TypeVar("T")

_REQUESTS_AT_ONCE: Final = 8
_MAX_REQUESTS_AT_ONCE: Final = 32
_MAX_REQUESTS: Final = 256
"""Maximum number of requests to one address."""
_QUIET_REQUESTS_ALONE: Final = 16
"""If there is only one address, the search ends after this many requests in a row that find no new instance."""
_QUIET_REQUESTS: Final = 8
_QUIET_REQUESTS_PER_INSTANCE: Final = 8
_QUIET_REQUESTS_WHILE_MISSING: Final = 128
_CALLS_PER_INSTANCE: Final = 6
_MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
_FIRST_BAD_STATUS: Final = 300
_MARK_SECONDS: Final = 40.0
"""Maximum age of the marks that the doctor looks for. The ledger keeps marks slightly longer."""
_MAX_ROUNDS: Final = 3
_MAX_DETAIL_CHARS: Final = 300
_MAX_REVISIONS: Final = 32
_BEGAN_PATTERN: Final = re.compile(r"instance ([0-9a-f]{12})$", re.ASCII)

_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(CallToolResult | InputRequiredResult)
_AGREED: Final = ElicitResult(action="accept", content={"value": True})
_PROBE_CALL: Final = LegRequest(PROBE_TOOL, {"journey": True})
"""The first leg of a probe call."""


class _RequestFailed(Exception):
    """A failed request to an address."""

    def __init__(self, trouble: Obstacle, detail: str = "") -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail[:_MAX_DETAIL_CHARS]


class _RejectedToken(_RequestFailed):
    """A request that failed because an instance rejected the call's token."""


async def observe(targets: Sequence[Target], *, patience: float, expected: int | None = None) -> Observed:
    """Probe all addresses, and every instance behind them.

    Args:
        targets: The targets. Each must be an address and not a command.
        patience: The time limit for one request, in seconds.
        expected: The expected number of instances. The search takes longer if it finds fewer.
    """
    with quiet():
        return await _Observer(targets, patience, expected).observe()


class _Observer:
    """One probe run."""

    def __init__(self, targets: Sequence[Target], timeout: float, expected: int | None) -> None:
        self._targets = targets
        self._timeout = timeout
        self._seen = Observed([Endpoint(target.url or "") for target in targets], expected=expected)
        # Create this context only once: it loads all certificate authorities, which takes longer than the requests.
        self._tls = httpx2.create_ssl_context()
        self._mark: str | None = None
        self._marked_at = 0.0

    async def observe(self) -> Observed:
        endpoints = range(len(self._targets))
        await asyncio.gather(*map(self._check_endpoint, endpoints))
        await self._set_mark()
        await asyncio.gather(*map(self._find_instances, self._working_endpoints))
        # Order by address, not by response time.
        self._seen.instances = dict(sorted(self._seen.instances.items(), key=lambda item: min(item[1].endpoints)))
        await self._try_calls()
        if self._new_instances:
            await asyncio.gather(*map(self._find_instances, self._working_endpoints))
        await asyncio.gather(*map(self._ask_live, self._working_endpoints))
        return self._seen

    @property
    def _working_endpoints(self) -> list[int]:
        return [number for number, endpoint in enumerate(self._seen.endpoints) if endpoint.trouble is None]

    @property
    def _new_instances(self) -> set[str]:
        """Return the instances that served a leg of a probe call, but were not found earlier."""
        found = {name for call in self._seen.journeys for name in (call.began, call.ended) if name is not None}
        return found - self._seen.instances.keys()

    async def _check_endpoint(self, number: int) -> None:
        endpoint = self._seen.endpoints[number]
        try:
            endpoint.revisions = await self._in_session(number, Era.AUTO, _revisions)
            if Era.RETRY.mode not in endpoint.revisions:
                raise _RequestFailed(Obstacle.OLD, ", ".join(endpoint.revisions))
            await self._facts(number)
        except _RequestFailed as failure:
            endpoint.trouble, endpoint.detail = failure.trouble, failure.detail
            return
        endpoint.ready = await self._readiness(number)

    async def _set_mark(self) -> None:
        for number in self._working_endpoints:
            try:
                report = await self._facts(number, claim=True)
            except _RequestFailed:
                continue
            if report.marked == "down":
                self._seen.instances[report.instance].look = LedgerCheck.DOWN
            if report.mark is not None:
                self._mark, self._marked_at, self._seen.marker = report.mark, anyio.current_time(), report.instance
                return

    async def _find_instances(self, number: int) -> None:
        endpoint = self._seen.endpoints[number]
        sent = quiet = 0
        at_once = _REQUESTS_AT_ONCE
        while quiet < self._quiet_requests(number) and sent < _MAX_REQUESTS:
            before = len(self._seen.behind(number))
            ends = await asyncio.gather(*(self._probe_once(number) for _ in range(at_once)))
            failures = [end for end in ends if end is not None]
            endpoint.failures += failures
            sent += at_once
            quiet = quiet + at_once if len(self._seen.behind(number)) == before else 0
            if len(failures) == at_once:
                break
            if quiet and len(self._seen.instances) < self._seen.sought:
                # More concurrent requests keep the first worker busy, so that other workers on the socket also get
                # requests.
                at_once = min(at_once * 2, _MAX_REQUESTS_AT_ONCE)
        endpoint.probes += sent
        endpoint.quiet = quiet

    def _quiet_requests(self, number: int) -> int:
        """Return how many requests in a row must find no new instance before the search ends."""
        if len(self._seen.instances) < self._seen.sought:
            return _QUIET_REQUESTS_WHILE_MISSING
        found_instances = len(self._seen.behind(number))
        least = _QUIET_REQUESTS_ALONE if len(self._targets) == 1 else _QUIET_REQUESTS
        return max(least, _QUIET_REQUESTS_PER_INSTANCE * found_instances if found_instances > 1 else 0)

    async def _probe_once(self, number: int) -> str | None:
        fresh = self._mark is not None and anyio.current_time() - self._marked_at < _MARK_SECONDS
        try:
            await self._facts(number, **({"look": self._mark} if fresh else {}))
        except _RequestFailed as failure:
            return f"{failure.trouble}: {failure.detail}" if failure.detail else failure.trouble.value
        return None

    async def _facts(self, number: int, **arguments: Any) -> InstanceReport:
        async def ask(session: ClientSession) -> tuple[InstanceReport, float, float]:
            sent_at, started = time.time(), time.perf_counter()
            result = await _send(session, LegRequest(PROBE_TOOL, arguments))
            took = time.perf_counter() - started
            return _read(InstanceReport, result), sent_at + took / 2, took / 2

        report, midpoint, uncertainty = await self._in_session(number, Era.RETRY, ask)
        offset = report.clock - midpoint
        known = self._seen.instances.setdefault(report.instance, ProbedInstance(report, set(), offset, uncertainty))
        known.endpoints.add(number)
        if uncertainty < known.uncertainty:
            known.offset, known.uncertainty = offset, uncertainty
        if report.looked is not None and known.look is not LedgerCheck.DOWN:
            foreign = report.looked == "seen" and report.saw != self._seen.marker
            known.look = LedgerCheck.ABSENT if foreign else LedgerCheck(report.looked)
        return report

    async def _try_calls(self) -> None:
        endpoints = self._working_endpoints
        neighbors = list(zip(endpoints, endpoints[1:] + endpoints[:1], strict=True))
        # Test both directions: A may be able to read B's tokens while B cannot read A's tokens.
        pairs = dict.fromkeys([*neighbors, *((end, start) for start, end in neighbors)])
        for start, end in pairs:
            self._seen.journeys.append(await self._play_call(start, end))
        for endpoint in endpoints:
            await self._try_calls_within(endpoint)

    async def _try_calls_within(self, endpoint: int) -> None:
        """Send calls to one address until a limit is reached, or until each instance has started a call that another
        one ended.
        """
        found_instances = set(self._seen.behind(endpoint))
        if len(found_instances) < 2:
            return
        left = min(_CALLS_PER_INSTANCE * len(found_instances), _MAX_REQUESTS)
        while left > 0 and not found_instances <= self._moved_starts():
            left -= _REQUESTS_AT_ONCE
            self._seen.journeys += await asyncio.gather(
                *(self._play_call(endpoint, endpoint) for _ in range(_REQUESTS_AT_ONCE))
            )

    def _moved_starts(self) -> set[str]:
        return {
            journey.began
            for journey in self._seen.journeys
            if journey.began is not None and journey.ended is not None and journey.began != journey.ended
        }

    async def _play_call(self, start: int, end: int) -> ProbedCall:
        began: str | None = None
        endpoints = chain([start], repeat(end))

        async def send_leg(leg: LegRequest) -> CallToolResult | InputRequiredResult:
            return await self._in_session(next(endpoints), Era.RETRY, partial(_send, leg=leg))

        async def accept(asked: InputRequiredResult) -> Mapping[str, InputResponse]:
            nonlocal began
            began = _began(asked)
            return dict.fromkeys(asked.input_requests or {}, _AGREED)

        try:
            result = await drive(_PROBE_CALL, send=send_leg, answer=accept, max_rounds=_MAX_ROUNDS)
            reached = _read(ProbeCallResult, result)
        except _RejectedToken:
            return ProbedCall(start, end, ProbeOutcome.REJECTED, began)
        except _RequestFailed as failure:
            return ProbedCall(start, end, ProbeOutcome.FAILED, began, detail=failure.detail or failure.trouble.value)
        return ProbedCall(start, end, ProbeOutcome.DONE, reached.began, reached.instance)

    async def _ask_live(self, number: int) -> None:
        endpoint = self._seen.endpoints[number]
        try:
            result = await self._in_session(number, Era.LIVE, partial(_send, leg=_PROBE_CALL))
            _read(ProbeCallResult, result)
        except _RequestFailed as failure:
            endpoint.older_clients = LiveQuestion.NO
            endpoint.older_clients_detail = failure.detail or failure.trouble.value
        else:
            endpoint.older_clients = LiveQuestion.YES

    async def _readiness(self, number: int) -> int | None:
        url = urljoin(self._seen.endpoints[number].url, "/health/ready")
        try:
            with anyio.fail_after(self._timeout):
                async with self._carrier(number, []) as carrier, carrier.stream("GET", url) as response:
                    status = response.status_code
        except (httpx2.HTTPError, TooLarge, TimeoutError):
            return None
        return status if status in (200, 503) else None

    def _carrier(self, number: int, statuses: list[int]) -> httpx2.AsyncClient:
        async def note(response: httpx2.Response) -> None:
            statuses.append(response.status_code)

        return httpx2.AsyncClient(
            headers={**UNCOMPRESSED, **self._targets[number].headers},
            verify=self._tls,
            timeout=httpx2.Timeout(self._timeout),
            limits=httpx2.Limits(max_keepalive_connections=0),
            event_hooks={"response": [note, size_limit(_MAX_RESPONSE_BYTES)]},
        )

    async def _in_session(self, number: int, era: Era, work: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Open a session with an address, and call `work` with it."""
        done: list[T] = []
        statuses: list[int] = []

        async def run(client: Client) -> None:
            done.append(await work(client.session))

        try:
            async with self._carrier(number, statuses) as carrier:
                client = Client(
                    streamable_http_client(self._seen.endpoints[number].url, http_client=carrier),
                    mode=era.mode,
                    cache=None,
                    **callbacks(_accept_live, sample=False, list_roots=False),
                )
                await within(client, run, scope=anyio.fail_after(self._timeout))
        except Exception as error:
            # The result counts even if closing the connection failed.
            if not done:
                bad = [status for status in statuses if status >= _FIRST_BAD_STATUS]
                raise self._failure_of(innermost(error), bad[-1] if bad else None) from error
        return done[0]

    def _failure_of(self, error: Exception, status: int | None) -> _RequestFailed:
        status_text = f"HTTP status {status}" if status is not None else ""
        match error:
            case _RequestFailed():
                return error
            case TimeoutError() | httpx2.TimeoutException():
                return _RequestFailed(Obstacle.TIMEOUT, f"no answer within {self._timeout:g} s")
            case MCPError() if is_token_rejection(error):
                return _RejectedToken(Obstacle.STRANGE, "the server rejects requests without a token")
            case _ if status in (401, 403):
                return _RequestFailed(Obstacle.FORBIDDEN, status_text)
            case _ if status in (404, 405):
                return _RequestFailed(Obstacle.NOT_FOUND, status_text)
            case httpx2.TransportError() if _is_tls(error):
                return _RequestFailed(Obstacle.TLS, f"{error}")
            case httpx2.TransportError():
                return _RequestFailed(Obstacle.UNREACHABLE, f"{error}" or type(error).__name__)
            case _ if status is not None:
                return _RequestFailed(Obstacle.NOT_MCP, status_text)
            case ValidationError():
                return _RequestFailed(Obstacle.NOT_MCP, "the response is not valid MCP")
            case _:
                return _RequestFailed(Obstacle.NOT_MCP, f"{error}" or type(error).__name__)


async def _revisions(session: ClientSession) -> Sequence[str]:
    discovered = session.discover_result
    if discovered is not None:
        return [revision[:_MAX_DETAIL_CHARS] for revision in discovered.supported_versions[:_MAX_REVISIONS]]
    return [session.protocol_version] if session.protocol_version is not None else []


async def _send(session: ClientSession, leg: LegRequest) -> CallToolResult | InputRequiredResult:
    # Do not use `call_tool`, because it first lists the tools, to get a schema for the result.
    params = CallToolRequestParams(
        name=leg.name,
        arguments=dict(leg.arguments),
        input_responses=dict(leg.answers) if leg.answers is not None else None,
        request_state=leg.state,
    )
    return await session.send_request(CallToolRequest(params=params), _RESULT)


async def _accept_live(request: InputRequest) -> InputResponse:
    return _AGREED


def _began(asked: InputRequiredResult) -> str | None:
    for request in (asked.input_requests or {}).values():
        if isinstance(request, ElicitRequest) and (found := _BEGAN_PATTERN.search(request.params.message)):
            return found[1]
    return None


ModelT = TypeVar("ModelT", InstanceReport, ProbeCallResult)


def _read(model: type[ModelT], result: CallToolResult | InputRequiredResult) -> ModelT:
    if isinstance(result, InputRequiredResult):
        raise _RequestFailed(Obstacle.STRANGE, "the probe asks a question instead of answering")
    if result.is_error:
        text = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        raise _RequestFailed(Obstacle.NO_PROBE if PROBE_TOOL in text else Obstacle.STRANGE, text)
    try:
        return model.model_validate(result.structured_content)
    except ValidationError as error:
        raise _RequestFailed(Obstacle.STRANGE, "the answer is not a response to the probe") from error


def _is_tls(error: BaseException | None) -> bool:
    if error is None:
        return False
    return isinstance(error, ssl.SSLError) or "SSL" in str(error) or _is_tls(error.__cause__ or error.__context__)
