"""Classifier: what an operation of a traced network does to blocks, or a refusal that names it."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from voxload.engine.layers.dropout import split_dropout
from voxload.engine.layers.form import Form
from voxload.engine.layers.linear import follows_flatten, split_linear
from voxload.engine.layers.pooling import volume_mean
from voxload.engine.layers.supported import CHANNELS_LAST, DROPOUTS, FORMS, FUNCTIONS, LAYERS, METHODS, REDUCTIONS
from voxload.errors import UsageError


class Place(enum.Enum):
    """What each rank holds of a value."""

    BLOCK = "block"
    """Its block of a volume, (B, C, d, h, w)."""
    LAST = "block, channels last"
    """Its block of a volume, (B, d, h, w, C)."""
    PARTS = "blocks"
    """Its blocks of several volumes that are cut alike: a volume's channels in parts."""
    FLAT = "block, flattened"
    """Its block of a volume that the next layer takes as flattened features."""
    WHOLE = "whole"
    """All of it, the same on every rank of the sample group."""
    POINT = "point"
    """All of a volume of one voxel, (B, C, 1, 1, 1), which meets each block as it would the whole."""
    SHAPE = "shape"
    """The shape of a block, of which only batch and channels are the same everywhere."""


BLOCKS = frozenset({Place.BLOCK, Place.LAST, Place.PARTS, Place.FLAT})
"""Places of what is cut over the ranks."""


_REMEDY = "put it after the flatten, or use the layers that docs/explanation/engine.md lists"
_MODULES_FOR_FUNCTIONS = "use the layer of torch.nn in place of the function"
_UNUSUAL_ARGUMENTS = {"out", "dtype"}
"""Keyword arguments that change what a voxel-by-voxel function is."""
_CHANNELS = (1, -4)
"""The channels' dimension of (B, C, d, h, w), from either end."""
_VOLUME = ({2, 3, 4}, {-3, -2, -1})
"""Its spatial dimensions, from either end."""
_TO_LAST, _FROM_LAST = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)
"""Permutations that move the channels behind the volume, and back."""
_SOFTMAX = {functional.softmax, functional.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax"}
_CAT = {torch.cat, torch.concat, torch.concatenate}
_DIVIDE = {torch.chunk, torch.split, "chunk", "split"}
_MEAN = {torch.mean, "mean"}
_RESHAPE = {torch.reshape, "reshape", "view"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one operation."""

    place: Place
    """Where its result lives."""
    form: Form | None = None
    """Its split form, if it is more than voxel by voxel."""
    layer: nn.Module | None = None
    """The layer as it runs on blocks, if it is another than the model's own."""
    reassembles: bool = False
    """Whether its input is made whole first."""
    is_cut_input: bool = False
    """Whether it has a block among its inputs."""


class Classifier:
    """Classifies the operations of one graph, in order.

    Parameters
    ----------
    model
        The network; it is only looked at.
    split
        Whether a volume is split, per axis (d, h, w).
    columns
        Whether dense layers behind a flatten take the columns of their own block.
    """

    def __init__(self, model: nn.Module, split: tuple[bool, ...], *, columns: bool = False) -> None:
        self._model = model
        self._columns = columns
        self._split = split
        self._places: dict[fx.Node, Place] = {}

    def verdict(self, node: fx.Node, site: int) -> Verdict:
        """Return what becomes of `node`; raises UsageError where it cannot run on blocks exactly."""
        found = self._judge(node, site)
        self._places[node] = found.place
        return found

    def _judge(self, node: fx.Node, site: int) -> Verdict:
        if node.op == "placeholder":
            return Verdict(Place.BLOCK)
        inputs = {self._places[source] for source in node.all_input_nodes}
        if Place.SHAPE in inputs:
            return self._of_shape(node)
        if not inputs & BLOCKS:
            return self._of_whole(node, inputs, site)
        if node.op == "output":
            return self._output(node)
        if node.op == "call_module":
            return self._layer(node, site)
        return self._function(node)

    def _of_shape(self, node: fx.Node) -> Verdict:
        """Judge what is done with the shape of a block: only batch and channels are the same everywhere."""
        if node.target is not operator.getitem or node.args[1] not in (0, 1):
            raise UsageError(
                f"operation {node.name!r}",
                found="a split volume's extents, which differ from rank to rank",
                remedy="read batch (0) or channels (1) only, and flatten with x.flatten(1)",
            )
        return Verdict(Place.WHOLE)

    def _of_whole(self, node: fx.Node, inputs: set[Place], site: int) -> Verdict:
        """Judge what is done where every rank has all: anything, and random numbers are the same everywhere."""
        kind = type(self._model.get_submodule(str(node.target))) if node.op == "call_module" else None
        if kind in DROPOUTS and _is_plain(node):
            layer = self._model.get_submodule(str(node.target))
            place = Place.POINT if Place.POINT in inputs else Place.WHOLE
            form, twin = split_dropout(layer, site)
            return Verdict(place, form, twin)
        return Verdict(Place.POINT if self._is_point(node, inputs) else Place.WHOLE)

    def _is_point(self, node: fx.Node, inputs: set[Place]) -> bool:
        """Tell whether a value that every rank has is certainly a volume of one voxel."""
        if node.op == "get_attr":
            return _meets_volumes(self._attribute(str(node.target)))
        if node.op == "call_module" and Place.POINT in inputs:
            layer = self._model.get_submodule(str(node.target))
            thin = (
                isinstance(layer, nn.Conv3d) and set(layer.kernel_size) == {1} and layer.padding in ((0, 0, 0), "valid")
            )
            return thin or type(layer) in LAYERS
        if _voxelwise(node) and inputs <= {Place.POINT}:
            return True
        if node.target in _RESHAPE and Place.SHAPE not in inputs:
            shape: Any = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
            return len(shape) == 5 and tuple(shape[2:]) == (1, 1, 1)
        if node.target is operator.getitem:
            return node.args[1] in _NEW_AXES
        return False

    def _attribute(self, path: str) -> Any:
        value: Any = self._model
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def _output(self, node: fx.Node) -> Verdict:
        """Judge the result: one volume may stay split."""
        (value,) = node.args
        if not isinstance(value, fx.Node) or self._places[value] is not Place.BLOCK:
            raise UsageError(
                "the network's output",
                found="several results, or parts of one, that are still split",
                expected="one volume (B, C, D, H, W), or results per sample",
                remedy="return one volume, or end the spatial part with nn.Flatten or a pooling",
            )
        return Verdict(Place.BLOCK, is_cut_input=True)

    def _layer(self, node: fx.Node, site: int) -> Verdict:
        """Judge a layer that is called on blocks."""
        path = str(node.target)
        layer: Any = self._model.get_submodule(path)
        kind, place = type(layer), self._places[node.all_input_nodes[0]]
        if _is_plain(node) and place is Place.LAST:
            if kind in CHANNELS_LAST or (kind is nn.LayerNorm and len(layer.normalized_shape) == 1):
                return Verdict(Place.LAST, is_cut_input=True)
        elif _is_plain(node) and place is Place.FLAT:
            return Verdict(Place.WHOLE, *split_linear(layer), is_cut_input=True)
        elif _is_plain(node) and place is Place.BLOCK:
            if kind in DROPOUTS:
                return Verdict(Place.BLOCK, *split_dropout(layer, site), is_cut_input=True)
            table = REDUCTIONS if kind in REDUCTIONS else FORMS
            if kind in table:
                return self._with_form(table[kind], layer, path)
            if kind in LAYERS or (kind in {nn.Softmax, nn.LogSoftmax} and layer.dim in _CHANNELS):
                return Verdict(Place.BLOCK, is_cut_input=True)
            if kind is nn.Flatten:
                flat = layer.start_dim == 1 and layer.end_dim in {-1, 4}
                if self._columns and flat and follows_flatten(self._model, node):
                    return Verdict(Place.FLAT, is_cut_input=True)
                return Verdict(Place.WHOLE, reassembles=True, is_cut_input=True)
        raise UsageError(f"layer {path!r} ({kind.__name__})", found="no split form", remedy=_REMEDY)

    def _with_form(self, split: Callable[..., tuple[Form, nn.Module]], layer: nn.Module, path: str) -> Verdict:
        """Judge a layer that has a split form, unless its settings have none."""
        try:
            form, twin = split(layer, self._split)
        except UsageError as error:
            raise UsageError(f"layer {path!r}: {error}") from error
        if type(layer) not in REDUCTIONS:
            return Verdict(Place.BLOCK, form, twin, is_cut_input=True)
        sizes = getattr(form, "sizes", ())
        return Verdict(Place.POINT if set(sizes) == {1} else Place.WHOLE, form, twin, is_cut_input=True)

    def _function(self, node: fx.Node) -> Verdict:
        """Judge a function or method that is called on blocks."""
        if _flattens(node) and self._places[node.all_input_nodes[0]] is Place.BLOCK:
            if self._columns and _flattens_all(node) and follows_flatten(self._model, node):
                return Verdict(Place.FLAT, is_cut_input=True)
            return Verdict(Place.WHOLE, reassembles=True, is_cut_input=True)
        if _is_shape_read(node):
            return Verdict(Place.WHOLE if node.args[1:] else Place.SHAPE, is_cut_input=True)
        if node.target is getattr and node.args[1] == "shape":
            return Verdict(Place.SHAPE, is_cut_input=True)
        if node.target in _MEAN and self._is_block(node) and _dims(node) in _VOLUME:
            place = Place.POINT if _argument(node, 2, "keepdim") is True else Place.WHOLE
            return Verdict(place, volume_mean("mean"), is_cut_input=True)
        moved = self._moved(node)
        if moved is not None:
            return Verdict(moved, is_cut_input=True)
        if not _voxelwise(node):
            raise UsageError(
                self._where(node),
                found="no split form",
                remedy=f"{_MODULES_FOR_FUNCTIONS}, or {_REMEDY}",
            )
        return self._voxel_by_voxel(node)

    def _moved(self, node: fx.Node) -> Place | None:
        """Return where the result of an operation lives that deals with channels alone; None for other operations."""
        target, places = node.target, [self._places[source] for source in node.all_input_nodes]
        if target in _CAT and set(places) == {Place.BLOCK} and _argument(node, 1, "dim") in _CHANNELS:
            return Place.BLOCK
        if target is operator.getitem and places[0] is Place.PARTS and isinstance(node.args[1], int):
            return Place.BLOCK
        if target is operator.getitem and self._is_block(node) and _picks_channels(node.args[1]):
            return Place.BLOCK
        if target == "permute" and not node.kwargs:
            order: Any = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
            moves = {(Place.BLOCK, _TO_LAST): Place.LAST, (Place.LAST, _FROM_LAST): Place.BLOCK}
            return moves.get((places[0], tuple(order)))
        if not self._is_block(node):
            return None
        if target in _SOFTMAX and _argument(node, 1, "dim") in _CHANNELS:
            return Place.BLOCK
        if target in _DIVIDE and _argument(node, 2, "dim") in _CHANNELS:
            return Place.PARTS
        return None

    def _voxel_by_voxel(self, node: fx.Node) -> Verdict:
        """Judge a function of each voxel: its other arguments must mean the same for a block as for the whole."""
        places = {self._places[source] for source in node.all_input_nodes if not self._is_vector(source)}
        fits = places <= {Place.BLOCK, Place.POINT} or places == {Place.LAST}
        if Place.LAST not in places:
            fits = fits and not any(self._is_vector(source) for source in node.all_input_nodes)
        if not fits or _UNUSUAL_ARGUMENTS & set(node.kwargs):
            raise UsageError(
                self._where(node),
                found=f"arguments {node.args} {node.kwargs or ''}".rstrip(),
                expected="split volumes, plain numbers and values of one voxel (B, C, 1, 1, 1)",
                remedy=_REMEDY,
            )
        return Verdict(Place.LAST if Place.LAST in places else Place.BLOCK, is_cut_input=True)

    def _is_vector(self, source: fx.Node) -> bool:
        """Tell whether a value is a parameter or buffer of one number per channel, for channels that come last."""
        value = self._attribute(str(source.target)) if source.op == "get_attr" else None
        return isinstance(value, torch.Tensor) and value.ndim == 1 and len(value) > 1

    def _is_block(self, node: fx.Node) -> bool:
        """Tell whether the only tensor that `node` takes is a block."""
        return [self._places[source] for source in node.all_input_nodes] == [Place.BLOCK]

    def _where(self, node: fx.Node) -> str:
        """Return the subject of a refusal: the function, and the user's module that calls it."""
        target = node.target
        name = f"{target}()" if isinstance(target, str) else getattr(target, "__name__", str(target))
        stack = node.meta.get("nn_module_stack", {}).values()
        inside = [f" in {path!r} ({kind.__name__})" for path, kind in stack if path]
        return f"operation {node.name!r} ({name} on a split volume){inside[-1] if inside else ''}"


_ALL = slice(None)
_NEW_AXES = ((_ALL, _ALL, None, None, None), (Ellipsis, None, None, None))
"""Indices that make (B, C, 1, 1, 1) of (B, C)."""


def _is_plain(node: fx.Node) -> bool:
    """Tell whether a layer is called on one tensor and nothing else."""
    return len(node.args) == 1 and not node.kwargs


def _voxelwise(node: fx.Node) -> bool:
    """Tell whether `node` is a function or method that treats each voxel by itself."""
    return node.target in METHODS if node.op == "call_method" else node.target in FUNCTIONS


def _argument(node: fx.Node, place: int, name: str) -> Any:
    """Return an argument that may be given by place or by name; None where it is not given."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _dims(node: fx.Node) -> set[Any]:
    """Return the dimensions over which `node` reduces."""
    dims = _argument(node, 1, "dim")
    return set(dims) if isinstance(dims, tuple | list) else set()


def _picks_channels(index: Any) -> bool:
    """Tell whether an index picks samples and channels by slices and leaves the volume whole."""
    if not isinstance(index, tuple) or any(not isinstance(part, slice) for part in index):
        return False
    return len(index) <= 2 or all(part == _ALL for part in index[2:])


def _meets_volumes(value: Any) -> bool:
    """Tell whether a parameter or buffer means the same for each block as for the whole volume."""
    if not isinstance(value, torch.Tensor):
        return False
    return all(extent == 1 for extent in value.shape[-3:])


def _is_shape_read(node: fx.Node) -> bool:
    """Tell whether `node` asks a tensor for its size: for all of it, or for batch or channels."""
    if node.op != "call_method" or node.target != "size" or node.kwargs:
        return False
    return len(node.args) == 1 or node.args[1:] in ((0,), (1,))


def _flattens_all(node: fx.Node) -> bool:
    """Tell whether a flatten leaves (B, features): by a view, or from the second dimension to the last."""
    if node.target in _RESHAPE:
        return True
    return _argument(node, 1, "start_dim") == 1 and _argument(node, 2, "end_dim") in {None, -1, 4}


def _flattens(node: fx.Node) -> bool:
    """Tell whether `node` flattens a volume into features: flatten, or a view as (batch, -1)."""
    if node.target in {torch.flatten, "flatten"}:
        return True
    if node.target not in _RESHAPE:
        return False
    wanted: Any = node.args[1] if len(node.args) == 2 else node.args[1:]
    if node.kwargs or not isinstance(wanted, tuple | list) or len(wanted) != 2:
        return False
    return isinstance(wanted[0], fx.Node) and isinstance(wanted[1], int) and wanted[1] == -1
