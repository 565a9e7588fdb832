"""pipeline_parts: one network as several, one behind the other, for the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import fx, nn

from voxload.engine.graph.faithful import Sample, require_faithful
from voxload.engine.graph.sharded import modes_set
from voxload.engine.graph.trace import trace
from voxload.engine.model.meta_runs import require_module, shapes_of
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a network can be cut in two."""

    name: str
    """Of the operation behind which it is, as torch.fx calls it."""
    shapes: tuple[tuple[int, ...], ...]
    """Of what goes from one part to the next, for one sample: one tensor, and those that later layers take besides."""


def pipeline_cuts(model: nn.Module, shape: Sequence[int], *, channels: int) -> list[Cut]:
    """Return where a network can be cut, in the order in which it runs; not thread-safe, as torch.fx is not.

    Parameters
    ----------
    model
        The network.
    shape
        Extents (D, H, W) of a volume that it takes.
    channels
        Of that volume.

    Raises
    ------
    UsageError
        When its forward is no fixed list of operations, or does not take such a volume.
    """
    chain = _Chain(model, shape, channels)
    shapes = shapes_of(model, chain.graph, shape)
    found = []
    for place, node in enumerate(chain.nodes[:-1], 1):
        live = chain.live(place)
        if all(each.name in shapes for each in live) and chain.why_not(place) is None:
            found.append(Cut(node.name, tuple(shapes[each.name] for each in live)))
    return found


def pipeline_parts(model: nn.Module, cuts: Sequence[str], *, shape: Sequence[int], channels: int) -> list[nn.Module]:
    """Return a network as parts, each of which takes what the one before it gives, for `pipeline_stage`.

    Parts have the network's own layers, under the same paths: their ``state_dict`` are those of the network, dealt out.
    What layers further on take besides, as those behind the skips of a U-Net do, goes through the parts between. Not
    thread-safe, as torch.fx is not.

    Parameters
    ----------
    model
        The network.
    cuts
        Names of the last operations of all parts but the last, as `pipeline_cuts` tells them.
    shape, channels
        Of a volume that it takes, with which parts are compared with the network's own forward.

    Raises
    ------
    UsageError
        When the network cannot be traced, or not be cut there.
    """
    chain = _Chain(model, shape, channels)
    places = [0, *(chain.place(name) for name in cuts), len(chain.nodes)]
    if sorted(set(places)) != places:
        raise UsageError(
            "cuts of a network", found=", ".join(cuts), expected="operations in the order in which they run, each once"
        )
    for place in places[1:-1]:
        reason = chain.why_not(place)
        if reason is not None:
            raise UsageError(
                f"a cut behind {chain.nodes[place - 1].name!r}", found=reason, expected="one that pipeline_cuts tells"
            )
    return [chain.part(first, last) for first, last in pairwise(places)]


class _Chain:
    """The operations of a network in order, and what is needed behind each."""

    def __init__(self, model: nn.Module, shape: Sequence[int], channels: int) -> None:
        require_module(model)
        self.model, self.graph = model, trace(model)
        modules = list(model.modules())
        for mode in (True, False):  # one list of operations has to do for both
            with modes_set(modules, (mode,) * len(modules)):
                require_faithful(model, self.graph, Sample(channels, tuple(shape)))
        self.nodes = [each for each in self.graph.nodes if each.op.startswith("call_")]
        (self._input,) = (each for each in self.graph.nodes if each.op == "placeholder")
        (self._output,) = (each for each in self.graph.nodes if each.op == "output")
        self._places = {each: place for place, each in enumerate(self.nodes, 1)}
        self._places[self._input] = 0
        # A result is used until the last operation that takes it.
        self._last = {
            each: max((self._place_of(user) for user in each.users), default=place)
            for each, place in self._places.items()
        }

    def place(self, name: str) -> int:
        """Return how many operations there are up to one."""
        for node, place in self._places.items():
            if node.name == name:
                return place
        raise UsageError("a cut of a network", found=repr(name), expected="a name that pipeline_cuts tells")

    def live(self, place: int) -> list[fx.Node]:
        """Return the results of the first `place` operations that later ones take, the latest first."""
        found = [each for each, made in self._places.items() if made <= place < self._last[each]]
        return sorted(found, key=lambda each: -self._places[each])

    def why_not(self, place: int) -> str | None:
        """Return why a network cannot be cut behind its first `place` operations; None where it can be."""
        before, behind = self.nodes[:place], self.nodes[place:]
        shared = set().union(*map(self._weights, before)) & set().union(*map(self._weights, behind))
        if shared:
            return "weights that layers on both sides share"
        live = self.live(place)
        for node in behind:
            if _is_in_place(self.model, node) and node.all_input_nodes[:1] and node.all_input_nodes[0] in live:
                return f"{node.name}, which changes in place what it is sent"
        return None if live else "nothing that goes across"

    def part(self, first: int, last: int) -> nn.Module:
        """Return the operations behind the first ones, up to another, as a network."""
        graph = fx.Graph()
        taken = self.live(first) if first else [self._input]
        values = {node: graph.placeholder(node.name) for node in taken}

        def value(node: fx.Node) -> fx.Node:
            if node not in values and node.op == "get_attr":
                values[node] = graph.node_copy(node)
            return values[node]

        for node in self.nodes[first:last]:
            for each in node.all_input_nodes:
                value(each)
            values[node] = graph.node_copy(node, value)
        if last < len(self.nodes):
            given = tuple(values[each] for each in self.live(last))
            graph.output(given[0] if len(given) == 1 else given)
        else:
            graph.output(fx.map_arg(self._output.args[0], value))
        return fx.GraphModule(self.model, graph, class_name=type(self.model).__name__)

    def _place_of(self, user: fx.Node) -> int:
        return len(self.nodes) + 1 if user is self._output else self._places[user]

    def _weights(self, node: fx.Node) -> set[int]:
        """Return what an operation has of its own, parameters or buffers."""
        found: list[Any] = []
        if node.op == "call_module":
            layer = self.model.get_submodule(str(node.target))
            found += [*layer.parameters(), *layer.buffers()]
        for each in node.all_input_nodes:
            if each.op == "get_attr":
                owner, _, name = str(each.target).rpartition(".")
                found.append(getattr(self.model.get_submodule(owner), name))
        return set(map(id, found))


def _is_in_place(model: nn.Module, node: fx.Node) -> bool:
    """Tell whether an operation changes the first tensor that it takes."""
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))
