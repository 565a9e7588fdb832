"""Skeleton: what a network is but for its numbers, so that its forward can be recorded at any time.

It is taken when a network is split. What wraps layers later, such as FSDP, which keeps a part of every weight and
fetches the rest with hooks, is not in it.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import ProcessGroup

from voxload.engine.model.guards import frozen, is_fixed, replaced
from voxload.engine.model.pytrees import token
from voxload.engine.model.sync_batch_norm import synced
from voxload.errors import UsageError

_OWN = frozenset(vars(nn.Module())) - {"training"}
"""What every module has; of that, only the training mode decides what forward does."""


class Skeleton:
    """A network whose weights and large buffers have shapes only.

    Parameters
    ----------
    model
        The network; it is left as it is.

    Raises
    ------
    UsageError
        When it cannot be copied.
    """

    def __init__(self, model: nn.Module) -> None:
        memo: dict[int, Any] = dict(_kept(model))
        # The network itself is given to every method: it holds this, and must not be held by it.
        self._parts = {path: module for path, module in model.named_modules() if path}
        self._settings = [(path, sorted(_settings(module))) for path, module in model.named_modules()]
        try:
            self._model = copy.deepcopy(model, memo)
        except (RuntimeError, TypeError) as error:
            raise UsageError(
                type(model).__name__,
                found=f"{type(error).__name__} when it is copied: {error}",
                expected="a model that copy.deepcopy can copy",
                remedy="take out of it what cannot be copied",
            ) from error
        synced(self._model)
        self._devices = {name: tensor.device for name, tensor in _tensors(model)}
        self._children = [dict(module._modules) for module in model.modules()]  # noqa: SLF001 - named_children leaves out those that are None
        self._values: list[Any] = []
        self.key: Any = None
        """Equal for equal settings, such as training modes, as `follow` saw them last."""
        self.changed: tuple[str, ...] = ()
        """Paths of the settings that were others then than before; training modes are none."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Skeleton:
        # The layers of the network whose copy this belongs to were copied before it.
        twin = copy.copy(self)
        twin.__dict__["_parts"] = {path: memo.get(id(module), module) for path, module in self._parts.items()}
        twin.__dict__["_model"] = copy.deepcopy(self._model, memo)
        twin.__dict__["_children"] = [
            {name: memo.get(id(child), child) for name, child in children.items()} for children in self._children
        ]
        return twin

    def follow(self, network: nn.Module) -> None:
        """Take over settings that were changed since: numbers, names and functions among the modules' attributes.

        Raises UsageError where a layer is another one now.
        """
        for then, (path, _) in zip(self._children, self._settings, strict=True):
            now = self._part(path, network)._modules  # noqa: SLF001 - as above
            if now != then and (name := replaced(now, then)) is not None:
                raise UsageError(
                    "a split network",
                    found=f"layer {f'{path}.{name}' if path else name!r} changed",
                    expected="what it was when voxload.engine.shard was called",
                    remedy="split the model again after such a change",
                )
        held = [(vars(self._part(path, network)), names) for path, names in self._settings]
        found = [attributes.get(name) for attributes, names in held for name in names]
        if self._is_known(found):
            self.changed = ()
            return
        places = [(path, name) for path, names in self._settings for name in names]
        pairs = zip(places, found, self._values, strict=False)  # at first there are none before
        self.changed = tuple(
            f"{path}.{name}" if path else name
            for (path, name), now, then in pairs
            if name != "training" and not _is_same(now, then)
        )
        values = iter(found)
        for path, names in self._settings:
            attributes = vars(self._model.get_submodule(path))
            for name in names:
                value = next(values)
                if is_fixed(value):
                    attributes[name] = value
        self._values = found
        self.key = token(found)

    def trained(self, network: nn.Module) -> tuple[bool, ...]:
        """Tell of every weight, layer by layer, whether gradients are wanted of it.

        It is asked in every pass; `network.parameters()` would make the name of each weight, only to drop it.
        """
        weights = (self._part(path, network)._parameters.values() for path, _ in self._settings)  # noqa: SLF001 - none of its children's
        return tuple(weight.requires_grad for held in weights for weight in held if weight is not None)

    @property
    def settings(self) -> str:
        """What all ranks must have alike, as text: names and shapes of weights, and the settings."""
        shapes = [(name, tuple(tensor.shape)) for name, tensor in _tensors(self._model)]
        plain = [value for value in self._values if isinstance(value, bool | int | float | str | type(None))]
        return repr((shapes, plain))

    def filled(self, fake: FakeTensorMode, network: nn.Module) -> nn.Module:
        """Return a copy with fake tensors in place of shapes, of the types and devices that the network's have now."""
        memo: dict[int, Any] = {}
        live = dict(_own("", network))
        live |= {name: tensor for path, module in self._parts.items() for name, tensor in _own(path, module)}
        for name, shape in _tensors(self._model):
            if shape.device.type != "meta":
                continue
            now = live.get(name, shape)
            device = self._devices[name] if now.device.type == "meta" else now.device
            with fake:
                made = torch.empty(shape.shape, dtype=now.dtype, device=device)
                is_weight = isinstance(shape, nn.Parameter)
                twin: Tensor = nn.Parameter(made, requires_grad=now.requires_grad) if is_weight else made
                memo[id(shape)] = twin
        return copy.deepcopy(self._model, memo)

    def plain(self) -> nn.Module:
        """Return a copy as it is: with tensors on the meta device in place of weights and large buffers."""
        twin = copy.deepcopy(self._model)
        for module in twin.modules():
            for name, buffer in module._buffers.items():  # noqa: SLF001 - none of its children's
                if buffer is not None:
                    module._buffers[name] = buffer.to("meta")  # noqa: SLF001 - as above
        return twin

    def _is_known(self, found: list[Any]) -> bool:
        """Tell whether settings are those of before, most often because they are the very same objects."""
        if len(found) == len(self._values) and all(map(operator.is_, found, self._values)):
            return True
        return found == self._values and all(map(_is_same, found, self._values))

    def _part(self, path: str, network: nn.Module) -> nn.Module:
        return self._parts[path] if path else network


def _own(path: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a module holds itself."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):  # noqa: SLF001 - none of its children's
        if tensor is not None:
            yield f"{path}.{name}" if path else name, tensor


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _kept(model: nn.Module) -> Iterator[tuple[int, Any]]:
    """Yield what a copy gets in the place of tensors and of handles, which no copy can have."""
    for weight in model.parameters():
        shape = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
        yield id(weight), nn.Parameter(shape, weight.requires_grad)
    for tensor in model.buffers():
        # Numbers, such as a count of batches, cost nothing, and forward may ask for their values.
        if tensor.ndim:
            yield id(tensor), torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, ProcessGroup):
                yield id(value), value
            elif isinstance(value, Tensor) and not value.is_leaf:
                yield id(value), value.detach()


def _settings(module: nn.Module) -> set[str]:
    """Return the names of attributes that may decide what forward does."""
    return {name for name, value in vars(module).items() if name not in _OWN and is_fixed(value)}


def _is_same(now: Any, before: Any) -> bool:
    """Tell whether two equal values are of one kind: 1 and True are not."""
    return now is before or frozen(now, frozenset()) == frozen(before, frozenset())
