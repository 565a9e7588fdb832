"""Program: a traced network, each operation with its split form; everything without one is refused by name."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from voxload.engine.conv import split_conv3d
from voxload.engine.pointwise import (
    DETERMINISTIC,
    DETERMINISTIC_FUNCTIONS,
    DETERMINISTIC_METHODS,
    FUNCTIONS,
    LAYERS,
    METHODS,
)
from voxload.engine.pool import split_avg_pool3d, split_max_pool3d
from voxload.engine.stencil import Stencil
from voxload.errors import UsageError

_STENCILS: dict[type[nn.Module], Callable[[Any, tuple[bool, ...]], tuple[Stencil, nn.Module]]] = {
    nn.Conv3d: split_conv3d,
    nn.MaxPool3d: split_max_pool3d,
    nn.AvgPool3d: split_avg_pool3d,
}
"""Windowed layers. The exact class counts: a subclass may compute something else."""

_REMEDY = "put it after the flatten, or use the layers that docs/engine.md lists"
_MODULES_FOR_FUNCTIONS = "use the layer of torch.nn in place of the function"
_UNUSUAL_ARGUMENTS = {"out", "dtype"}
"""Keyword arguments that change what a voxel-by-voxel function is."""


class Place(enum.Enum):
    """Where the value of an operation lives."""

    BLOCK = "block"
    """Cut over the ranks."""
    WHOLE = "whole"
    """The same on every rank of the sample group."""
    SHAPE = "shape"
    """The shape of a block, of which only batch and channels are the same everywhere."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the network."""

    node: fx.Node
    """The operation as torch.fx recorded it."""
    place: Place
    """Where its result lives."""
    stencil: Stencil | None
    """Its split form, when it is a windowed layer on blocks."""
    reassembles: bool
    """Whether its input is made whole first."""
    may_draw: bool
    """Whether it may draw random numbers, which must then be the same on all ranks of a group."""
    last_uses: tuple[fx.Node, ...]
    """Values that no later operation needs."""


@dataclass(frozen=True, slots=True)
class Program:
    """A network that can run on blocks."""

    steps: tuple[Step, ...]
    """The operations, in order."""
    layers: dict[str, nn.Module]
    """Windowed layers as they run on blocks, by their path in the model."""
    fingerprint: str
    """Text that two ranks have alike when they run the same network."""

    def __deepcopy__(self, memo: dict[int, object]) -> Program:
        # Frozen, and it names layers by path: a copied model runs the same program on its own layers.
        return self


def compile_program(model: nn.Module, graph: fx.Graph, split: tuple[bool, ...]) -> Program:
    """Return the program of `model`, whose operations `graph` lists, for volumes split along some axes.

    Parameters
    ----------
    model
        The network; it is only looked at.
    graph
        Its operations, from `trace`.
    split
        Whether a volume is split, per axis (d, h, w).

    Raises
    ------
    UsageError
        For the first operation that cannot run on blocks exactly. Nothing has been sent by then.
    """
    places: dict[fx.Node, Place] = {}
    layers: dict[str, nn.Module] = {}
    steps = []
    dying = _last_uses(graph)
    for node in graph.nodes:
        place, stencil = _classify(model, node, places, split)
        if stencil is not None:
            layers[str(node.target)] = stencil[1]
        reassembles = place is Place.WHOLE and _on_block(node, places) and not _is_shape_read(node)
        steps.append(
            Step(
                node,
                place,
                stencil[0] if stencil else None,
                reassembles,
                place is Place.WHOLE and _may_draw(model, node),
                tuple(dying.get(node, ())),
            )
        )
        places[node] = place
    _refuse_double_use(model, steps, layers)
    return Program(tuple(steps), layers, "\n".join(_describe(model, step) for step in steps))


def _classify(
    model: nn.Module, node: fx.Node, places: dict[fx.Node, Place], split: tuple[bool, ...]
) -> tuple[Place, tuple[Stencil, nn.Module] | None]:
    """Return where the result of `node` lives, and its split form if it is a windowed layer on blocks."""
    if node.op == "placeholder":
        return Place.BLOCK, None
    inputs = {places[source] for source in node.all_input_nodes}
    if Place.SHAPE in inputs:
        _require_common_extent(node)
        return Place.WHOLE, None
    if Place.BLOCK not in inputs:
        return Place.WHOLE, None
    if node.op == "output":
        raise UsageError(
            "the network's output",
            found="a volume that is still split",
            expected="a result per sample",
            remedy="end the spatial part with nn.Flatten",
        )
    if node.op == "call_module":
        return _classify_layer(model, node, split)
    return _classify_function(node, places), None


def _classify_layer(
    model: nn.Module, node: fx.Node, split: tuple[bool, ...]
) -> tuple[Place, tuple[Stencil, nn.Module] | None]:
    """Return where the result of a layer that is called on blocks lives, and its split form."""
    path = str(node.target)
    layer = model.get_submodule(path)
    kind = type(layer)
    plain = len(node.args) == 1 and not node.kwargs
    if plain and kind in _STENCILS:
        try:
            return Place.BLOCK, _STENCILS[kind](layer, split)
        except UsageError as error:
            raise UsageError(f"layer {path!r}: {error}") from error
    if plain and kind in LAYERS:
        return Place.BLOCK, None
    if plain and kind is nn.Flatten:
        return Place.WHOLE, None
    raise UsageError(f"layer {path!r} ({kind.__name__})", found="no split form", remedy=_REMEDY)


def _classify_function(node: fx.Node, places: dict[fx.Node, Place]) -> Place:
    """Return where the result of a function or method that is called on blocks lives; raises UsageError."""
    target = node.target
    name = f"{target}()" if isinstance(target, str) else getattr(target, "__name__", str(target))
    if _flattens(node):
        return Place.WHOLE
    if _is_shape_read(node):
        return Place.WHOLE if node.args[1:] else Place.SHAPE
    if target is getattr and node.args[1] == "shape":
        return Place.SHAPE
    known = target in METHODS if node.op == "call_method" else target in FUNCTIONS
    if not known:
        raise UsageError(
            _where(node, name),
            found="no split form",
            remedy=f"{_MODULES_FOR_FUNCTIONS}, or {_REMEDY}",
        )
    if any(places[source] is not Place.BLOCK for source in node.all_input_nodes) or _UNUSUAL_ARGUMENTS & set(
        node.kwargs
    ):
        raise UsageError(
            _where(node, name),
            found=f"arguments {node.args} {node.kwargs or ''}".rstrip(),
            expected="split volumes and plain numbers",
            remedy=_REMEDY,
        )
    return Place.BLOCK


def _where(node: fx.Node, name: str) -> str:
    """Return the subject of a refusal: the function, and the user's module that calls it."""
    inside = [f" in {path!r} ({kind.__name__})" for path, kind in node.meta.get("nn_module_stack", {}).values() if path]
    return f"operation {node.name!r} ({name} on a split volume){inside[-1] if inside else ''}"


def _refuse_double_use(model: nn.Module, steps: list[Step], layers: dict[str, nn.Module]) -> None:
    """Raise UsageError for a layer that runs on blocks and on the whole: on blocks it has lost its padding."""
    on_blocks = {model.get_submodule(path): path for path in layers}
    for step in steps:
        if step.node.op != "call_module" or step.stencil is not None:
            continue
        for module in model.get_submodule(str(step.node.target)).modules():
            if module in on_blocks:
                raise UsageError(
                    f"layer {on_blocks[module]!r} ({type(module).__name__})",
                    found="use on a split volume and after the flatten",
                    remedy="use two layers that share their parameters",
                )


def _is_shape_read(node: fx.Node) -> bool:
    """Tell whether `node` asks a tensor for its size: for all of it, or for batch or channels."""
    if node.op != "call_method" or node.target != "size" or node.kwargs:
        return False
    return len(node.args) == 1 or node.args[1:] in ((0,), (1,))


def _require_common_extent(node: fx.Node) -> None:
    """Raise UsageError unless `node` takes batch or channels from a block's shape."""
    if node.target is not operator.getitem or node.args[1] not in (0, 1):
        raise UsageError(
            f"operation {node.name!r}",
            found="a split volume's extents, which differ from rank to rank",
            remedy="read batch (0) or channels (1) only, and flatten with x.flatten(1)",
        )


def _flattens(node: fx.Node) -> bool:
    """Tell whether `node` flattens a volume into features: flatten, or a view as (batch, -1)."""
    if node.target in {torch.flatten, "flatten"}:
        return True
    if node.target not in {"view", "reshape", torch.reshape}:
        return False
    wanted: Any = node.args[1] if len(node.args) == 2 else node.args[1:]
    if node.kwargs or not isinstance(wanted, tuple | list) or len(wanted) != 2:
        return False
    return isinstance(wanted[0], fx.Node) and isinstance(wanted[1], int) and wanted[1] == -1


def _on_block(node: fx.Node, places: dict[fx.Node, Place]) -> bool:
    """Tell whether `node` has a block among its inputs."""
    return any(places[source] is Place.BLOCK for source in node.all_input_nodes)


def _may_draw(model: nn.Module, node: fx.Node) -> bool:
    """Tell whether an operation of the head may draw random numbers; what is not known may."""
    if node.op == "call_module":
        return any(type(module) not in DETERMINISTIC for module in model.get_submodule(str(node.target)).modules())
    if node.op == "call_method":
        return node.target not in DETERMINISTIC_METHODS
    return node.op == "call_function" and node.target not in DETERMINISTIC_FUNCTIONS


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return, per operation, the values that are used by it for the last time: activations are large."""
    seen: set[fx.Node] = set()
    dying: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(graph.nodes):
        for source in (*node.all_input_nodes, node):
            if source not in seen:
                seen.add(source)
                dying.setdefault(node, []).append(source)
    return dying


def _describe(model: nn.Module, step: Step) -> str:
    """Return one line that tells `step` from any other that computes something else."""
    node = step.node
    layer = f" {model.get_submodule(str(node.target))!r}" if node.op == "call_module" else ""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{node.name} = {node.op} {target}{layer} {node.args} {node.kwargs} {step.stencil}"


def operations(program: Program) -> Iterator[Step]:
    """Yield the steps that do something on blocks: windowed layers and the reassembly."""
    for step in program.steps:
        if step.stencil is not None or step.reassembles:
            yield step
