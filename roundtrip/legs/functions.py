"""The author's functions that may ask: the body of a tool, a prompt or a resource template."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from mcp.server.mcpserver import Context as SdkContext
from mcp_types import InputRequiredResult

from roundtrip.engine.leg import DONE, PlainBody
from roundtrip.errors import ContextOfHost, InvalidSignature, OutcomeUsedAsValue, UsedUnawaited
from roundtrip.machine.journal import Limits
from roundtrip.on_demand import load_on_use
from roundtrip.questions.outcomes import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from roundtrip.resolvers.annotations import Reject, accept, find_resolved
from roundtrip.resolvers.markers import Marker, SdkResolve, check_inline
from roundtrip.resolvers.plan import EMPTY, Plan
from roundtrip.resolvers.signatures import (
    arms_of,
    display_name,
    given_by_partials,
    hints_of,
    is_async,
    returns_input_required,
)
from roundtrip.resolvers.threads import Threads
from roundtrip.threads.leg_threads import FunctionThreads
from roundtrip.threads.loops import is_on_event_loop

if TYPE_CHECKING:
    from roundtrip import tracing
    from roundtrip.legs import asking
    from roundtrip.legs.requests import Incoming
    from roundtrip.questions.markers import Marker as Question
    from roundtrip.resolvers import planner

load_on_use(globals(), "roundtrip.legs.asking", "roundtrip.resolvers.planner", "roundtrip.tracing")

T = TypeVar("T")

_Place = Literal["loop", "inline", "thread"]
"""Where a body runs. `loop`: a coroutine function on the event loop. `inline`: a plain function on the event loop.
`thread`: a plain function in a worker thread.
"""

Kind = Literal["tool", "prompt", "resource"]

_METHODS: Final[Mapping[Kind, str]] = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
_ASKING: Final = frozenset(f"AskingContext.{name}" for name in ("elicit", "elicit_url", "sample", "list_roots"))
"""Context methods that return an ordinary coroutine instead of an `Asking`."""
_digests: Final[dict[str, str | None]] = {}
"""Digests of the source files that have been read; None for an unreadable file."""


class Build:
    """The application build to which some functions belong: a digest of their source.

    Builds that serve at the same time must have different digests. If a question changes between two builds, the new
    build is the reason, and the question does not count as volatile.

    The constructor reads the source files at once, because they may be replaced later. On an event loop, the
    constructor does not read files. The caller must then call `read`, for example in a thread.
    """

    __slots__ = ("_functions", "text")

    def __init__(self, functions: Iterable[Callable[..., Any]], given: str | None = None) -> None:
        self._functions = tuple(functions)
        self.text = given
        """The digest; None until `read` is called."""
        if given is None and (not is_on_event_loop() or all(map(_is_known, self._functions))):
            self.read()

    def read(self) -> str:
        """Return a short digest of the modules that define the functions."""
        if self.text is None:
            digests = sorted({_digest_of(function) for function in self._functions})
            self.text = hashlib.sha256("".join(digests).encode()).hexdigest()[:6]
        return self.text


class Planned:
    """A plan that can be made again with other functions."""

    __slots__ = ("__weakref__", "_make", "functions", "plan", "replacements")

    def __init__(self, make: Callable[[planner.Replacements], Plan]) -> None:
        self._make = make
        self.replacements: planner.Replacements = {}
        self.plan = make(self.replacements)
        self.functions = self.plan.functions
        """Every function that may be replaced, keyed by its identity."""

    def replace(self, replacements: planner.Replacements) -> None:
        """Make the plan again, with some functions replaced.

        Raises:
            InvalidSignature: The plan cannot work with the replacements.
        """
        self.plan = self._make(replacements)
        self.replacements = replacements


class FunctionSignature(NamedTuple):
    """A function and the parameters that clients do not see, because resolvers or the context fill them."""

    fn: Callable[..., Any]
    kind: Kind
    name: str
    resolved: planner.ResolvedParameters
    contexts: tuple[str, ...]
    unpassed: frozenset[str] = frozenset()
    """Names in `resolved` that are not parameters. Their functions run, but their values are not used."""
    foreign: Mapping[str, Any] = {}
    """Dependencies from another library that fill parameters."""
    reject: Reject = accept
    """Rejects another library's dependencies that would not fill a parameter."""

    @property
    def owner(self) -> str:
        """Return the item's kind and name for error messages: `tool 'order'`."""
        return f"{self.kind} {self.name!r}"

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the parameters that no client sees."""
        return (*self.contexts, *self.resolved, *self.foreign)


def check_timeout(timeout: float | None, *, owner: str) -> None:
    """Check a timeout.

    Raises:
        ValueError: The timeout is not a positive, finite number of seconds.
    """
    if timeout is None:
        return
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 < timeout < math.inf:
        raise ValueError(f"{owner}: timeout= must be a positive, finite number of seconds, got {timeout!r}")


def read_signature(
    fn: Callable[..., Any],
    *,
    kind: Kind,
    name: str,
    dependencies: Sequence[Marker] = (),
    injected: Collection[str] | None = None,
    foreign: Mapping[str, Any] = MappingProxyType({}),
    reject: Reject = accept,
) -> FunctionSignature:
    """Read a function's parameters.

    Args:
        fn: The function.
        kind: The registered item's kind, such as a tool or a prompt.
        name: The registered name; for a resource, its URI or template.
        dependencies: Markers whose functions run before `fn`, although no parameter takes their values.
        injected: The parameters that the host fills.
        foreign: Dependencies from another library that fill parameters.
        reject: Rejects a default or annotation that looks like a marker but would not fill the parameter.

    Raises:
        InvalidSignature: A marker would be ignored, or the function asks in two ways.
    """
    owner = f"{kind} {name!r}"
    filled_elsewhere = foreign if injected is None else injected
    resolved = find_resolved(fn, owner=owner, besides=filled_elsewhere, reject=reject)
    if any(isinstance(marker, SdkResolve) for marker, _ in resolved.values()) and returns_input_required(fn):
        raise InvalidSignature(
            f"{owner} combines Resolve(...) parameters with a returned InputRequiredResult; a call must ask all its "
            "questions in one of these two ways"
        )
    unpassed = {f"dependencies[{number}]": (marker, False) for number, marker in enumerate(dependencies)}
    filled = {"return", *resolved, *filled_elsewhere, *given_by_partials(fn)}
    contexts = tuple(
        parameter
        for parameter, hint in hints_of(fn).items()
        if parameter not in filled
        and any(isinstance(arm, type) and issubclass(arm, SdkContext) for arm in arms_of(hint))
    )
    return FunctionSignature(fn, kind, name, {**resolved, **unpassed}, contexts, frozenset(unpassed), foreign, reject)


def _plan(fn: Callable[..., Any] | None, *, resolved: planner.ResolvedParameters, **options: Any) -> Plan:
    """Return a function's plan. See `make_plan`."""
    if not resolved:
        return EMPTY
    return planner.make_plan(fn, resolved=resolved, context_types=(SdkContext,), **options)


class LegFeature:
    """A feature that takes part in a function's legs. Its subclass `LegExtension` has the methods that handle legs."""

    leaves_threads = False
    """True if a leg that has timed out does not wait for its threads."""


class AskingFunction:
    """A function that may ask, with the plan that fills its parameters and the rules for its calls.

    Args:
        signature: The function and its parameters.
        arguments: Maps each name that a resolver may use for one of the client's arguments to the argument's real name.
        limits: The time limits for calls.
        build: The build that the author gives; None for a digest of the source.
        timeout: How many seconds a leg's work may take.
        version: The tool's version.
        convert: Converts the function's value to a result.
        confirm: Returns a question's name and the question itself. The user must accept the question before anything
            runs.
        inline: True to run a plain function on the event loop.
        hands_over: True if the client may get a task handle instead of a result.
        policies: Feature options, by class.
        extension: A feature that fills parameters for this function only.

    Raises:
        InvalidSignature: A resolver graph cannot work, or an `async def` is inline.
        ValueError: The timeout is not a positive, finite number of seconds.
    """

    def __init__(
        self,
        signature: FunctionSignature,
        arguments: Mapping[str, str],
        *,
        limits: Limits,
        build: str | None,
        timeout: float | None = None,
        version: str | None = None,
        convert: Callable[[Any], Any] | None = None,
        confirm: Callable[[Mapping[str, Any]], tuple[str, Question]] | None = None,
        inline: bool = False,
        hands_over: bool = False,
        policies: Mapping[type, object] = MappingProxyType({}),
        extension: LegFeature | None = None,
    ) -> None:
        check_timeout(timeout, owner=signature.owner)
        if inline:
            check_inline(signature.fn, subject=signature.owner)
        fn, resolved = signature.fn, signature.resolved
        self.kind: Kind = signature.kind
        self.name = signature.name
        self.owner = signature.owner
        self.contexts = signature.contexts
        self.limits = limits
        self.timeout = timeout
        self.version = version
        self.confirm = confirm
        self.hands_over = hands_over
        self.extensions: tuple[LegFeature, ...] = () if extension is None else (extension,)
        """The features that take part in the function's legs, outermost first."""
        self._policies = policies
        self.planned = Planned(
            lambda replacements: _plan(
                fn,
                owner=signature.owner,
                arguments=arguments,
                resolved=resolved,
                replacements=replacements,
                reject=signature.reject,
            )
        )
        self.source = Build([fn, *(node.fn for node in self.planned.plan.nodes)], build)
        self._signature = signature
        self._arguments = arguments
        self._convert = convert
        self._place: _Place = "loop" if is_async(fn) else "inline" if inline else "thread"
        self._resolves = any(isinstance(marker, SdkResolve) for marker, _ in resolved.values())
        """True if a `Resolve` fills any parameter. Then resolvers ask the questions, and the body must not ask by hand.
        """
        leaves = timeout is not None or (extension is not None and extension.leaves_threads)
        self.threads = FunctionThreads(self.owner, leaves=leaves, waits_for_users=bool(signature.contexts))

    def policy(self, kind: type[T]) -> T | None:
        """Return a feature's options, given their class; None if the feature has no options."""
        return cast("T | None", self._policies.get(kind))

    @property
    def build(self) -> str:
        """Return the build to which the function belongs. This reads files if `source` has not been read yet."""
        return self.source.read()

    @property
    def subject(self) -> tracing.ServedFunction:
        """Return the function's description for tracers."""
        return _subject_of(self.kind, self.name, self.version, self.build, self.planned.plan.fingerprint)

    def plan_for(self, done: Callable[..., Any]) -> Plan:
        """Return the plan for a page's `done` function.

        The `done` function may take the same parameters as this function's resolvers.

        Raises:
            InvalidSignature: One of the parameters cannot be filled.
        """
        return _plan(
            None,
            owner=f"{self.owner}, done={display_name(done)}",
            arguments=self._arguments,
            resolved={DONE: (SdkResolve(done), False)},
            replacements=self.planned.replacements,
            reject=self._signature.reject,
        )

    def is_called(self, method: str, name: str) -> bool:
        """Return True unless a client's request calls another tool."""
        return method != "tools/call" or name == self.name

    def is_asked_for(self, incoming: Incoming) -> bool:
        """Return True if a client's request called this function directly, and not through another function.

        If another function calls this function, that begins a new call without answers. Middlewares and visibility
        gates may also call functions before the request is served. Such a call has no request context, or its tool is
        not the tool that the client called.
        """
        record = incoming.record
        if record is None or record.is_taken or incoming.request is None:
            return False
        return self.is_called(record.context.method, str((record.context.params or {}).get("name", "")))

    async def run(self, arguments: Mapping[str, Any], filled: Mapping[str, Any], context: Any, threads: Threads) -> Any:
        """Run the function, and convert its result. A plain function and its conversion run in a worker thread."""
        call = self._bound(arguments, filled, context)
        if self._place == "loop":
            result = call()
        elif self._place == "inline":
            result = self._call_converted(call)
        else:
            result = await threads.run_body(functools.partial(self._call_converted, call))
        return await self._finish(result)

    def plain_body(self, arguments: Mapping[str, Any]) -> PlainBody | None:
        """Return the body if it may run in the same thread as the plain resolvers, directly after them;
        otherwise None.
        """
        if self._place != "thread" or self.contexts or self._signature.foreign:
            return None

        def begin(filled: Mapping[str, Any]) -> Callable[[], Any]:
            return functools.partial(self._call_converted, self._bound(arguments, filled))

        return PlainBody(begin, self._finish)

    def _bound(self, arguments: Mapping[str, Any], filled: Mapping[str, Any], context: Any = None) -> Callable[[], Any]:
        """Return the function with all its arguments bound."""
        fn, unpassed = self._signature.fn, self._signature.unpassed
        if unpassed:
            filled = {name: value for name, value in filled.items() if name not in unpassed}
        return functools.partial(fn, **arguments, **filled, **dict.fromkeys(self.contexts, context))

    def _call_converted(self, call: Callable[[], Any]) -> Any:
        """Call a plain function, and convert its result."""
        try:
            return self._converted(call())
        except AttributeError as error:
            self.raise_mistake(error)
            raise

    async def _finish(self, result: Any) -> Any:
        """Await the body's result if it is a coroutine, then convert and check it."""
        if inspect.isawaitable(result):
            try:
                result = self._converted(await result)
            except AttributeError as error:
                self.raise_mistake(error)
                raise
        if self._resolves and isinstance(result, InputRequiredResult):
            raise InvalidSignature(
                f"{self.owner} returned an InputRequiredResult, but its parameters are filled by Resolve(...); a "
                "call must ask all its questions in one of these two ways"
            )
        return result

    def raise_mistake(self, error: AttributeError) -> None:
        """Raise a clearer error if an answer was not awaited, an outcome was used in place of its value, or the SDK's
        context lacks the method.
        """
        used, name = error.obj, str(error.name)
        if inspect.iscoroutine(used) and used.__qualname__ in _ASKING:
            used.close()
            raise UsedUnawaited(f"ctx.{used.__name__}()") from error
        if isinstance(used, AcceptedElicitation | DeclinedElicitation | CancelledElicitation):
            kind = type(cast("object", used)).__name__.partition("[")[0]
            raise OutcomeUsedAsValue(name, kind=kind) from error
        if isinstance(used, SdkContext) and hasattr(asking.AskingContext, name):
            raise ContextOfHost(name, kind=SdkContext) from error

    needs_request = False
    """True if the host may be unable to run the function without a client's request."""

    def as_sent(self, value: Any) -> Any:
        """Return a converted value in the form that clients receive, for tracers."""
        return value

    def _converted(self, result: Any) -> Any:
        unfinished = isinstance(result, InputRequiredResult) or inspect.isawaitable(result)
        return result if unfinished or self._convert is None else self._convert(result)


@functools.lru_cache(maxsize=1024)
def _subject_of(kind: Kind, name: str, version: str | None, build: str, plan: str) -> tracing.ServedFunction:
    # Return the same object for each function and plan, because tracers may use it as a cache key.
    return tracing.ServedFunction(_METHODS[kind], name, version, build, plan)


def _target_of(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _defining(target: Any) -> Any:
    """Return the function or class whose source is in a file."""
    return target if hasattr(target, "__code__") or inspect.isclass(target) else cast("object", target).__class__


def _file_of(defining: Any) -> str | None:
    try:
        return inspect.getfile(defining)
    except (TypeError, OSError):  # built in, or typed into an interpreter
        return None


def _is_known(function: Callable[..., Any]) -> bool:
    file = _file_of(_defining(_target_of(function)))
    return file is None or file in _digests


def _digest_of(function: Callable[..., Any]) -> str:
    target = _target_of(function)
    defining = _defining(target)
    file = _file_of(defining)
    if file is not None:
        if file not in _digests:
            _digests[file] = _digest_of_file(inspect.getsourcefile(defining))
        if (digest := _digests[file]) is not None:
            return digest
    code = getattr(target, "__code__", None)
    return _digest_of_code(code) if isinstance(code, CodeType) else str(getattr(target, "__qualname__", defining))


def _digest_of_file(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # the program runs from an archive
        return None


def _digest_of_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        # The repr of a nested function's code contains an address, so make a digest of the code.
        digest.update(_digest_of_code(constant).encode() if isinstance(constant, CodeType) else repr(constant).encode())
    return digest.hexdigest()
