"""Making a plan: read the author's functions, give their nodes names, and reject graphs that cannot work."""

import hashlib
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_origin

from roundtrip.errors import CircularDependencyError, InvalidSignature
from roundtrip.questions.markers import is_marker
from roundtrip.resolvers.annotations import Reject, accept, asking_arms, marker_of, read_marker
from roundtrip.resolvers.fits import asked_type, check_asking, is_page, misfit, must_ask, remembered_adapter
from roundtrip.resolvers.markers import Dependency, Marker, Resolve, base_of, digest_of
from roundtrip.resolvers.plan import EMPTY, Input, Node, Plan, Source
from roundtrip.resolvers.signatures import (
    arms_of,
    display_name,
    given_by_partials,
    hints_of,
    identity,
    is_async,
    is_generator_function,
    is_manager_class,
    makes_async_manager,
    wants_outcome,
)

ResolvedParameters = Mapping[str, tuple[Marker, bool]]
"""Maps each marked parameter to a pair: its marker, and whether the function takes the outcome instead of the value."""

Replacements = Mapping[Hashable, Callable[..., Any]]
"""Replacement functions. The key is the identity of the function that is replaced."""


@dataclass(slots=True, eq=False, repr=False)
class _Draft:
    """A node while its plan is being made."""

    who: Hashable
    fn: Callable[..., Any]
    label: str
    key: str | None
    former_names: tuple[str, ...]
    remember: bool
    inline: bool
    enters: bool
    returns: Any
    filled: Any
    inputs: list[Input] = field(default_factory=list[Input])
    mentions: dict[str, "_Mention"] = field(default_factory=dict[str, "_Mention"])
    """The nodes that this node needs, by the parameters that they fill."""
    index: int = -1
    dependents: list[int] = field(default_factory=list[int])
    path: tuple[str, ...] = ()
    full_key: str = ""
    consumer: str | None = None

    @property
    def name(self) -> str:
        """Return the node's key without its path. The path distinguishes nodes with the same name."""
        return self.key or self.label


class _Mention(NamedTuple):
    """One parameter that needs a node."""

    who: Hashable
    marker: Marker
    filled: Any


@dataclass(slots=True, eq=False, repr=False)
class _Planner:
    owner: str
    arguments: Mapping[str, str]
    context_types: tuple[type, ...]
    replacements: Replacements
    reject: Reject
    functions: dict[Hashable, Callable[..., Any]] = field(default_factory=dict[Hashable, Callable[..., Any]])
    drafts: dict[Hashable, _Draft] = field(default_factory=dict[Hashable, _Draft])
    order: list[_Draft] = field(default_factory=list[_Draft])
    """All nodes, each after the nodes that it needs."""

    def plan(self, resolved: ResolvedParameters, filled: Mapping[str, Any]) -> Plan:
        roots = {
            parameter: self._mention(marker, self.owner, parameter, filled.get(parameter, Any))
            for parameter, (marker, _) in resolved.items()
        }
        for parameter, mention in roots.items():
            self._visit(mention, parameter)
        self._check_fit(roots, self.owner)
        for draft in self.drafts.values():
            self._check_fit(draft.mentions, f"{self.owner}: {draft.label!r}")
        self._shorten_paths(roots)
        self._name()
        self._note_consumers(resolved, roots)
        for draft in self.order:
            for child in self._needs(draft):
                child.dependents.append(draft.index)
        nodes = tuple(self._finish(draft) for draft in self.order)
        inputs = tuple(
            Input(parameter, Source.NODE, node=self.drafts[roots[parameter].who].index, outcome=outcome)
            for parameter, (_, outcome) in resolved.items()
        )
        lanes, home = _lanes(nodes, inputs)
        return Plan(
            nodes=nodes,
            roots=inputs,
            fingerprint=_fingerprint(nodes),
            names=self._index_names(nodes),
            never_suspended=[node.inline for node in nodes],
            functions=self.functions,
            enters=any(node.enters for node in nodes),
            may_carry_secrets=any(node.remember for node in nodes),
            lanes=lanes,
            home=home,
        )

    # Read the functions depth first, without recursion, because a graph may be deeper than Python's stack allows.

    def _visit(self, mention: _Mention, parameter: str) -> None:
        open_: dict[Hashable, str] = {}
        stack: list[tuple[_Mention, str, bool]] = [(mention, parameter, False)]
        while stack:
            mention, parameter, leaving = stack.pop()
            who, marker = mention.who, mention.marker
            if leaving:
                open_.popitem()
                self.drafts[who].index = len(self.order)
                self.order.append(self.drafts[who])
                continue
            base = base_of(marker)
            if base in open_:
                labels = list(open_.values())
                cycle = labels[list(open_).index(base) :]
                raise CircularDependencyError(
                    f"{self.owner}: resolvers must not need each other in a cycle, got "
                    f"{' -> '.join([*cycle, cycle[0]])}; make one of them independent of the others"
                )
            if who in self.drafts:
                self._merge(self.drafts[who], marker)
                continue
            draft = self.drafts[who] = self._read(mention, parameter)
            open_[base] = draft.label
            stack.append((mention, parameter, True))
            stack.extend((child, name, False) for name, child in reversed(draft.mentions.items()))

    def _mention(self, marker: Marker, consumer: Hashable, parameter: str, filled: Any) -> _Mention:
        base = base_of(marker)
        shared = not isinstance(marker, Dependency) or marker.use_cache
        return _Mention(base if shared else (base, digest_of((consumer, parameter))), marker, filled)

    def _needs(self, draft: _Draft) -> list[_Draft]:
        """Return the nodes that a node needs, without duplicates."""
        return [self.drafts[who] for who in dict.fromkeys(mention.who for mention in draft.mentions.values())]

    def _merge(self, draft: _Draft, marker: Marker) -> None:
        """Merge another mention of a function into the function's node. The mention may repeat options, but not change
        them.
        """
        key, former, remember, inline = _options(marker)
        if key is not None and draft.key is not None and key != draft.key:
            raise InvalidSignature(
                f"{self.owner}: {draft.label!r} is named both {draft.key!r} and {key!r}; a function asks one "
                "question per call. Use one name=, or two functions"
            )
        draft.key = draft.key or key
        draft.former_names = tuple(dict.fromkeys((*draft.former_names, *former)))
        draft.remember = draft.remember or remember
        draft.inline = draft.inline or inline
        draft.enters = draft.enters or _is_entered(marker, draft.fn)

    def _read(self, mention: _Mention, parameter: str) -> _Draft:
        who, marker, filled = mention
        label = display_name(marker.fn)
        who_asked = identity(marker.fn)
        self.functions[who_asked] = marker.fn
        # A replacement keeps the name of the replaced function, so answers that are already in flight remain valid.
        fn = self.replacements.get(who_asked, marker.fn)
        is_replaced = fn is not marker.fn
        # An author may pass any object, despite the annotation on `Resolve`.
        given: object = fn
        if is_marker(given) or inspect.isawaitable(given):
            if inspect.iscoroutine(given):
                given.close()
            got, cure = (
                (f"the question {label}(...)", "write a function that returns it, and Resolve(that_function)")
                if is_marker(given)
                else (f"the result of calling {label!r}", f"leave out its parentheses: Resolve({label})")
            )
            raise InvalidSignature(
                f"{self.owner}: parameter {parameter!r} must be filled by a function, got {got}; {cure}"
            )
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError) as error:
            raise InvalidSignature(
                f"{self.owner}: {label!r}, which should fill {parameter!r}, has no readable signature ({error}); "
                "wrap it in a function"
            ) from error
        hints = hints_of(fn)
        key, former, remember, inline = _options(marker)
        returns = fn if inspect.isclass(fn) else hints.get("return", Any)
        check_asking(returns, label, f"{self.owner}, parameter {parameter!r}")
        draft = _Draft(who, fn, label, key, former, remember, inline, _is_entered(marker, fn), returns, filled)
        # A partial has given this parameter a value, which an argument with the same name must not replace.
        bound = given_by_partials(fn)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in bound]
        if isinstance(marker, Dependency) and not is_replaced:
            parameters = self._place(draft, marker, parameters, hints)
        self._classify_all(draft, parameters, hints)
        return draft

    def _place(
        self, draft: _Draft, marker: Dependency, parameters: list[inspect.Parameter], hints: Mapping[str, Any]
    ) -> list[inspect.Parameter]:
        """Fill the first parameters from the marker's positional dependencies. Return the remaining parameters."""
        left = list(parameters)
        for number, sub in enumerate(marker.subs):
            first = left[0] if left else None
            if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
                raise InvalidSignature(
                    f"{self.owner}: Depends({draft.label}, ...) passes {len(marker.subs)} values by position, "
                    f"but {draft.label!r} takes {number}"
                )
            name = first.name
            if first.kind is first.VAR_POSITIONAL:
                name = f"{name}[{number}]"
            else:
                left.pop(0)
            _, filled = marker_of(hints.get(first.name))
            self._need(draft, name, sub, filled, positional=True)
        return left

    def _need(self, draft: _Draft, name: str, marker: Marker, filled: Any, *, positional: bool) -> None:
        draft.mentions[name] = self._mention(marker, draft.who, name, filled)
        draft.inputs.append(Input(name, Source.NODE, outcome=wants_outcome(filled), positional=positional))

    def _classify_all(self, draft: _Draft, parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> None:
        skipped = ""
        for parameter in parameters:
            before = len(draft.inputs)
            self._classify(draft, parameter, hints.get(parameter.name))
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                continue
            if len(draft.inputs) == before:
                skipped = skipped or parameter.name
            elif skipped:
                raise InvalidSignature(
                    f"{self.owner}: {draft.label!r} takes {parameter.name!r} by position only, but nothing fills "
                    f"the preceding parameter {skipped!r}; remove the '/'"
                )

    def _classify(self, draft: _Draft, parameter: inspect.Parameter, annotation: Any) -> None:
        name = parameter.name
        positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        marker, filled = read_marker(parameter, annotation, function=draft.label, owner=self.owner, reject=self.reject)
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            if marker is not None:
                raise InvalidSignature(
                    f"{self.owner}: parameter {name!r} of {draft.label!r} takes any number of values, but "
                    f"{marker!r} is one value; give it a separate parameter"
                )
        elif marker is not None:
            self._need(draft, name, marker, filled, positional=positional)
        elif self._is_context(annotation):
            draft.inputs.append(Input(name, Source.CONTEXT, positional=positional))
        elif name in self.arguments:
            argument = self.arguments[name]
            draft.inputs.append(Input(name, Source.ARGUMENT, name=argument, positional=positional))
        elif parameter.default is inspect.Parameter.empty:
            unread = ""
            if annotation is None and parameter.annotation is not inspect.Parameter.empty:
                unread = f" (its annotation {parameter.annotation!r} cannot be evaluated here)"
            raise InvalidSignature(
                f"{self.owner}: parameter {name!r} of resolver {draft.label!r} cannot be filled{unread}: "
                "it is not a Context, has no Resolve(...), Depends(...) or default, and no argument has that name; "
                f"the arguments are {', '.join(map(repr, self.arguments)) or 'none'}"
            )

    def _is_context(self, annotation: Any) -> bool:
        return any(
            isinstance(arm, type) and issubclass(arm, self.context_types)
            for arm in (get_origin(arm) or arm for arm in arms_of(annotation))
        )

    def _check_fit(self, mentions: Mapping[str, _Mention], consumer: str) -> None:
        """Reject a parameter whose resolver asks for a type that the parameter does not take."""
        for parameter, mention in mentions.items():
            if identity(mention.marker.fn) in self.replacements:
                # A replacement in a test may return any type.
                continue
            draft = self.drafts[mention.who]
            unfit = misfit(draft.returns, mention.filled)
            if unfit is not None:
                asked, taken = unfit
                raise InvalidSignature(
                    f"{consumer}: resolver {draft.label!r} asks for {asked}, but parameter {parameter!r} takes {taken}"
                    f"; annotate the parameter with {asked}, or ask for {taken}"
                )

    # The methods below assign names, paths and consumers.

    def _shorten_paths(self, roots: Mapping[str, _Mention]) -> None:
        """Give each node the shortest parameter path from the tool. Among paths of equal length, use the alphabetically
        first.
        """
        layer = {mention.who: (parameter,) for parameter, mention in sorted(roots.items(), reverse=True)}
        seen: dict[Hashable, tuple[str, ...]] = dict(layer)
        while layer:
            below: dict[Hashable, tuple[str, ...]] = {}
            for who, path in layer.items():
                for name, mention in self.drafts[who].mentions.items():
                    longer = (*path, name)
                    if mention.who not in seen and longer < below.get(mention.who, ("\U0010ffff",)):
                        below[mention.who] = longer
            seen |= below
            layer = below
        for who, path in seen.items():
            self.drafts[who].path = path

    def _name(self) -> None:
        """Give each node its key. If nodes have the same name, their keys also contain their paths."""
        by_name: dict[str, list[_Draft]] = {}
        for draft in self.order:
            by_name.setdefault(draft.name, []).append(draft)
        taken: dict[str, _Draft] = {}
        for name, group in by_name.items():
            explicit = [draft for draft in group if draft.key is not None]
            if len(explicit) > 1:
                functions = " and ".join(repr(draft.label) for draft in explicit)
                raise InvalidSignature(f"{self.owner}: {functions} are both named {name!r}; give each a different name")
            for draft in group:
                apart = len(group) > 1 and draft.key is None
                draft.full_key = f"{name}@{'.'.join(draft.path)}" if apart else name
                other = taken.setdefault(draft.full_key, draft)
                if other is not draft:
                    raise InvalidSignature(
                        f"{self.owner}: {other.label!r} and {draft.label!r} have the same name {draft.full_key!r}; "
                        "give each of them a name="
                    )

    def _index_names(self, nodes: Sequence[Node]) -> dict[str, int]:
        names = {node.key: node.index for node in nodes}
        for node in nodes:
            for name in node.names[1:]:
                if names.setdefault(name, node.index) != node.index:
                    raise InvalidSignature(
                        f"{self.owner}: {node.label!r} has the former name {name!r}, which is also a current or former "
                        f"name of {nodes[names[name]].label!r}; a running call's answer could belong to either"
                    )
        return names

    def _note_consumers(self, resolved: ResolvedParameters, roots: Mapping[str, _Mention]) -> None:
        """Record which parameter would take each node's bare value first if the nodes ran one by one."""
        unread = iter(self.order)
        last = -1
        for parameter, (_, outcome) in resolved.items():
            root = self.drafts[roots[parameter].who]
            while last < root.index:
                draft = next(unread)
                last = draft.index
                for entry in draft.inputs:
                    if entry.source is Source.NODE and not entry.outcome:
                        child = self.drafts[draft.mentions[entry.parameter].who]
                        child.consumer = child.consumer or entry.parameter
            if not outcome:
                root.consumer = root.consumer or parameter

    def _finish(self, draft: _Draft) -> Node:
        inputs = tuple(
            entry._replace(node=self.drafts[draft.mentions[entry.parameter].who].index)
            if entry.source is Source.NODE
            else entry
            for entry in draft.inputs
        )
        asking = asking_arms(draft.returns)
        if draft.remember and draft.enters:
            raise InvalidSignature(
                f"{self.owner}: Resolve({draft.label}, remember=True) must not make a context manager, because it "
                "exits when the leg ends; remember a plain value, and make the context manager in another function"
            )
        subject = f"{self.owner}: Resolve({draft.label}, remember=True)"
        computed = remembered_adapter(draft.returns, draft.filled, subject) if draft.remember else None
        return Node(
            index=draft.index,
            who=draft.who,
            fn=draft.fn,
            label=draft.label,
            key=draft.full_key,
            bare_key=draft.name,
            names=(draft.full_key, *draft.former_names),
            remember=draft.remember,
            is_async=(waits := is_async(draft.fn) or (draft.enters and makes_async_manager(draft.fn))),
            # A test may replace an inline function with a coroutine function, which is not inline.
            inline=draft.inline and not waits,
            enters=draft.enters,
            inputs=inputs,
            needs=tuple(child.index for child in self._needs(draft)),
            dependents=tuple(draft.dependents),
            consumer=draft.consumer,
            computed=computed,
            asked=asked_type(asking[0]) if asking else None,
            must_ask=must_ask(draft.returns, draft.filled),
            asks_page=bool(asking) and is_page(asking[0]),
        )


def make_plan(
    fn: Callable[..., Any] | None,
    *,
    owner: str,
    arguments: Mapping[str, str],
    context_types: tuple[type, ...],
    resolved: ResolvedParameters,
    replacements: Replacements | None = None,
    reject: Reject = accept,
) -> Plan:
    """Return a function's plan.

    Args:
        fn: The function whose annotations describe the parameters to fill; None if there is no function.
        owner: The registered item, for error messages: `tool 'order'`.
        arguments: Maps each name that a resolver may use for a tool argument to the argument's real name.
        context_types: The classes that mark a parameter for the request's context.
        resolved: The parameters to fill.
        replacements: Functions that replace other functions.
        reject: Rejects a default or annotation that looks like a marker but would not fill the parameter.

    Raises:
        InvalidSignature: The graph can never work.
    """
    if not resolved:
        return EMPTY
    filled: dict[str, Any] = {}
    if fn is not None:
        hints = hints_of(fn)
        filled = {name: marker_of(hints.get(name))[1] for name in resolved}
    return _Planner(owner, arguments, context_types, replacements or {}, reject).plan(resolved, filled)


def _is_entered(marker: Marker, fn: Callable[..., Any]) -> bool:
    return is_generator_function(fn) or (isinstance(marker, Dependency) and is_manager_class(fn))


def _options(marker: Marker) -> tuple[str | None, tuple[str, ...], bool, bool]:
    """Return a marker's name, former names, `remember` and `inline`."""
    if isinstance(marker, Resolve):
        return marker.name, marker.former_names, marker.remember, marker.inline
    return None, (), False, isinstance(marker, Dependency) and marker.inline


def _lanes(nodes: Sequence[Node], roots: Sequence[Input]) -> tuple[tuple[int | None, ...], int | None]:
    """Return the lane of each node that runs in a thread, and the first lane among the roots.

    Two nodes that run in threads share a lane if one needs the other, directly or through nodes that run elsewhere.
    """
    lane = {node.index: node.index for node in nodes if not (node.is_async or node.inline)}

    def lane_of(index: int) -> int:
        while lane[index] != index:
            lane[index] = index = lane[lane[index]]
        return index

    # Each node in a thread has itself here. Any other node has the nearest nodes in threads among those that it needs.
    nearest: list[set[int]] = []
    for node in nodes:
        needed = set[int]().union(*(nearest[need] for need in node.needs))
        if node.index in lane:
            for index in needed:
                first, second = sorted((lane_of(index), lane_of(node.index)))
                lane[second] = first
            needed = {node.index}
        nearest.append(needed)
    home = next((min(nearest[root.node]) for root in roots if nearest[root.node]), None)
    lanes = tuple(lane_of(node.index) if node.index in lane else None for node in nodes)
    return lanes, None if home is None else lanes[home]


def _fingerprint(nodes: Sequence[Node]) -> str:
    """Return a short digest of the graph. Adding, removing or renaming a node changes it; moving a node does not."""
    shape = sorted((node.key, sorted(nodes[need].key for need in node.needs), node.remember) for node in nodes)
    return hashlib.sha256(repr(shape).encode()).hexdigest()[:6]
