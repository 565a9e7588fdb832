"""NetworkPlan: what every layer of a program moves for one shape of volume, and how a rank carries it out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.plan import AxisPlan, Part
from voxload.engine.program import Place, Program, Step
from voxload.engine.reshape import parts_of, plan_whole, reassemble
from voxload.engine.stencil import StencilPlan, Tile
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The plans of all layers of a program, for all ranks of a sample group and one cut of the volume."""

    stencils: dict[str, StencilPlan]
    """Plan of each windowed layer, by the name of its operation."""
    wholes: dict[str, tuple[AxisPlan, ...]]
    """Plan of each reassembly, by the name of the operation that follows it."""
    digest: int
    """A 63-bit number that two ranks have alike when their plans and networks are alike."""

    def at(self, coords: Sequence[int]) -> LocalPlan:
        """Return the part of the rank at `coords` of its sample group."""
        return LocalPlan(
            {name: plan.at(coords) for name, plan in self.stencils.items()},
            {name: parts_of(plans, coords) for name, plans in self.wholes.items()},
        )


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """One rank's part of a NetworkPlan."""

    tiles: dict[str, Tile]
    """Part of each windowed layer, by the name of its operation."""
    parts: dict[str, tuple[Part, ...]]
    """Part of each reassembly, by the name of the operation that follows it."""


def plan_network(program: Program, blocks: Blocks) -> NetworkPlan:
    """Return what the layers of `program` move for a volume that is cut into `blocks`.

    Pure: every rank gets the same plan. Raises UsageError when a layer's window does not fit the volume, or an
    operation joins volumes that are cut differently.
    """
    cuts: dict[fx.Node, Blocks] = {}
    stencils: dict[str, StencilPlan] = {}
    wholes: dict[str, tuple[AxisPlan, ...]] = {}
    for step in program.steps:
        node = step.node
        if node.op == "placeholder":
            cuts[node] = blocks
            continue
        inputs = {cuts[source] for source in node.all_input_nodes if source in cuts}
        if len(inputs) > 1:
            raise UsageError(
                f"operation {node.name!r}",
                found=f"volumes cut differently ({'; '.join(sorted(str(cut) for cut in inputs))})",
                expected="volumes of one shape",
            )
        if step.stencil is not None:
            stencils[node.name] = step.stencil.plan(*inputs)
            cuts[node] = stencils[node.name].result
        elif step.place is Place.BLOCK:
            (cuts[node],) = inputs
        elif step.reassembles:
            wholes[node.name] = plan_whole(*inputs)
    text = f"{program.fingerprint}\n{blocks}\n{stencils}\n{wholes}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    return NetworkPlan(stencils, wholes, digest)


@dataclass(frozen=True, slots=True)
class Run:
    """One forward pass of a program on this rank."""

    modules: nn.Module
    """The module tree whose layers are called."""
    plan: LocalPlan
    """This rank's part of the plan."""
    exchange: Exchange
    """Carries the messages."""
    seed: int
    """Seed of the head's random numbers, the same on all ranks of the group."""

    def __call__(self, program: Program, x: Tensor) -> Any:
        """Return the network's result for this rank's block `x`."""
        values: dict[fx.Node, Any] = {}
        for index, step in enumerate(program.steps):
            node = step.node
            if node.op == "placeholder":
                values[node] = x
                del x  # the caller's reference is its own affair; this one must not outlive the first layer
            elif node.op == "output":
                return map_arg(node.args[0], values.__getitem__)
            else:
                values[node] = self._value(step, values, index)
            for dead in step.last_uses:
                del values[dead]
        return None

    def _value(self, step: Step, values: dict[fx.Node, Any], index: int) -> Any:
        """Return the result of one step."""
        node = step.node
        args: Any = map_arg(node.args, values.__getitem__)
        kwargs: Any = map_arg(node.kwargs, values.__getitem__)
        if step.stencil is not None:
            layer = self.modules.get_submodule(str(node.target))
            return step.stencil.run(layer, args[0], self.plan.tiles[node.name], self.exchange)
        if step.reassembles:
            args = (reassemble(args[0], self.plan.parts[node.name], self.exchange), *args[1:])
        if not step.may_draw:
            return self._call(node, args, kwargs)
        with torch.random.fork_rng(devices=_gpus(args)):
            torch.manual_seed(self.seed + index)
            return self._call(node, args, kwargs)

    def _call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out an operation as torch.fx recorded it."""
        if node.op == "call_module":
            return self.modules.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "get_attr":
            value: Any = self.modules
            for name in str(node.target).split("."):
                value = getattr(value, name)
            return value
        if isinstance(node.target, str):
            raise UsageError(f"operation {node.name!r}", found=f"an unknown kind, {node.op}")
        return node.target(*args, **kwargs)


def _gpus(args: Any) -> list[int]:
    """Return the GPUs whose random state an operation on `args` may change."""
    devices = {value.device for value in args if isinstance(value, Tensor) and value.device.type == "cuda"}
    return [device.index for device in devices]
