"""The four functions take each other's results."""

from typing import Any, assert_type

from mcp_types import InputRequiredResult

from roundtrip import Context
from roundtrip.resolve import (
    Resolve,
    ResolverPlans,
    build_resolver_plans,
    find_resolved_parameters,
    resolve_arguments,
    returns_input_required,
)


async def fill(fn: Any, context: Context) -> dict[str, Any]:
    assert_type(returns_input_required(fn), bool)
    resolved = find_resolved_parameters(fn)
    plans = build_resolver_plans(resolved, {"film"})
    assert_type(plans, ResolverPlans)
    values = await resolve_arguments(resolved, plans, {"film": "Solaris"}, context)
    assert_type(values, dict[str, Any] | InputRequiredResult)
    return values if isinstance(values, dict) else {}


by_hand = {"seat": (Resolve(len), False)}
