"""The SDK's four functions for filling parameters manually, implemented with roundtrip's plans and legs.

Use them to fill the parameters of a function that is not registered as a tool. Registered tools do not need them.
"""

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import InputRequiredResult

from roundtrip.docket import foreign
from roundtrip.engine.leg import DONE, Declined, Leg, Suspended
from roundtrip.engine.leg_run import serve
from roundtrip.engine.ports import Ports
from roundtrip.errors import KeysMissing, TokenRejected
from roundtrip.legs.requests import RequestClient
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal, Limits, from_text, to_text
from roundtrip.resolvers.annotations import Reject, accept, find_resolved
from roundtrip.resolvers.markers import Marker, Resolve, SdkResolve
from roundtrip.resolvers.plan import Node, Plan
from roundtrip.resolvers.planner import ResolvedParameters, make_plan
from roundtrip.resolvers.signatures import identity, returns_input_required
from roundtrip.server.server import Server
from roundtrip.system import SYSTEM
from roundtrip.threads.any_threads import AnyThreads
from roundtrip.tokens.token import JournalCodec

__all__ = [
    "Resolve",
    "ResolverPlans",
    "build_resolver_plans",
    "find_resolved_parameters",
    "resolve_arguments",
    "returns_input_required",
]

_LIMITS = Limits(ttl=600.0, max_age=3600.0)


class ResolverPlans(dict[Hashable, Node]):
    """Nodes of a resolver graph, keyed by function identity, with the plan for the whole graph."""

    def __init__(self, plan: Plan) -> None:
        super().__init__({identity(node.fn): node for node in plan.nodes})
        self.plan = plan


def find_resolved_parameters(fn: Any) -> dict[str, tuple[Marker, bool]]:
    """Return, for each parameter that a `Resolve` fills, its marker and whether the parameter takes the outcome.

    Raises:
        InvalidSignature: A marker is nested inside a union or another type.
    """
    return find_resolved(fn, reject=foreign.reject)


def build_resolver_plans(resolved_params: ResolvedParameters, tool_arg_names: Set[str]) -> ResolverPlans:
    """Check the resolver graph for the given parameters, and return its plan.

    Raises:
        InvalidSignature: The graph has a cycle, or a parameter that nothing can fill.
    """
    return ResolverPlans(_plan(resolved_params, tool_arg_names, foreign.reject))


async def resolve_arguments(
    resolved_params: ResolvedParameters, plans: ResolverPlans, tool_args: Mapping[str, Any], context: Context[Any, Any]
) -> dict[str, Any] | InputRequiredResult:
    """Fill the parameters, or return the questions that the client must answer first.

    In the retry era, the questions are an `InputRequiredResult`, which the caller returns to the client unchanged. The
    next leg reads the answers and the state from its context. In the live era, this function waits for the answers.

    Raises:
        ToolError: The user declined or cancelled a question whose value is needed.
        KeysMissing: A resolver keeps a value with `remember=True`, and the server has no key to seal that value.
    """
    server = context.mcp_server
    codec = server.internals.parts.protection.journals if isinstance(server, Server) else JournalCodec(None)
    if plans.plan.may_carry_secrets and not codec.can_seal:
        raise KeysMissing(
            f"{', '.join(resolved_params)}: remember=True keeps values in the token, and this server has no key to "
            "seal them with; run the function on roundtrip.Server"
        )
    journal = _restore(codec, context.request_state)
    request = context.request_context if context.protocol_version is not None else None
    born = journal.born if journal is not None else SYSTEM.time()
    leg = Leg(
        call=Call(SYSTEM.new_id()) if journal is None else Call.resumed(journal),
        plan=plans.plan,
        client=RequestClient(request),
        born=born,
        end=journal.end if journal is not None else born + _LIMITS.max_age,
        clock=SYSTEM.time,
        limits=_LIMITS,
        write=lambda journal: to_text(codec.write(journal)),
        plan_for=lambda done: _plan({DONE: (SdkResolve(done), False)}),
        threads=AnyThreads(),
        ports=Ports(pinner=codec.pinner),
        journal=journal,
        responses=context.input_responses if journal is not None else None,
    )
    filled: dict[str, Any] = {}

    async def take(values: dict[str, Any], _: Any) -> None:
        filled.update(values)

    end = await serve(
        leg, arguments=tool_args, make_context=lambda _: context, body_takes_no_context=True, execute=take
    )
    if isinstance(end, Declined):
        raise ToolError(end.reason)
    if isinstance(end, Suspended):
        return end.result()
    return filled


def _plan(resolved: ResolvedParameters, arguments: Iterable[str] = (), reject: Reject = accept) -> Plan:
    return make_plan(
        None,
        owner="resolve_arguments()",
        arguments={name: name for name in arguments},
        context_types=(Context,),
        resolved=resolved,
        reject=reject,
    )


def _restore(codec: JournalCodec, state: str | None) -> Journal | None:
    """Return the journal from a state that this module wrote; None for a state that the caller wrote."""
    if state is None:
        return None
    try:
        return codec.read(from_text(state))
    except (TokenRejected, ValueError):
        return None
