"""Tracer: sees every operation of torch below autograd, and how long memory is held."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from voxload.engine.observe import exchanged, runs_layer
from voxload.plan.checkpoints import plain_path
from voxload.plan.trace.operation import Allocation, Gradient, Operation, Phase

_PLAIN = (int, float, bool, str, torch.dtype, torch.memory_format)
_LISTS = (list, tuple)


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it untyped
    """Writes down what is done while it is entered; used by one thread.

    Parameters
    ----------
    model, network
        The model whose modules' paths are told, and the same split: some of its layers are others.
    clock
        Returns seconds, once the device has done all that it was given; None where there is nothing to measure.
    """

    def __init__(self, model: nn.Module, network: nn.Module, clock: Callable[[], float] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self._clock = clock
        self.seconds: list[float] = []
        """What each operation took, where there is a clock."""
        self.phase: Phase | None = None
        """What is done now; None for forward or backward, as autograd says."""
        self.operations: list[Operation] = []
        self.gradients: list[Gradient] = []
        self._paths = {
            id(module): plain_path(path) for each in (model, network) for path, module in each.named_modules()
        }
        self._sequence: dict[int, str] = {}  # paths by autograd's numbers of nodes
        self._live: dict[int, tuple[int, int, str, str, tuple[int, ...]]] = {}
        self._used: dict[int, int] = {}
        self._gone: list[Allocation] = []
        self._hooks = [
            weight.register_post_accumulate_grad_hook(self._hook(plain_path(name)))  # type: ignore[no-untyped-call] # as above
            for name, weight in network.named_parameters()
            if weight.requires_grad
        ]

    def allocations(self) -> tuple[Allocation, ...]:
        """Return all memory that was made, in the order in which it was."""
        last = len(self.operations)
        held = (
            Allocation(nbytes, made, last, path, name, shape, max(made, self._used.get(key, made)))
            for key, (nbytes, made, path, name, shape) in self._live.items()
        )
        return tuple(sorted([*self._gone, *held], key=lambda each: each.made))

    def close(self) -> None:
        """Leave the network as it was."""
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Carry out one operation and write it down, unless it only looks at memory in another way."""
        kwargs = kwargs or {}
        node = torch._C._current_autograd_node()  # noqa: SLF001 - torch has no public way to ask
        path = self._path(node)
        begin = self._clock() if self._clock else 0.0
        result = func(*args, **kwargs)
        end = self._clock() if self._clock else 0.0
        taken = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        given = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        known = {_key(each) for each in taken}
        fresh = [each for each in given if _key(each) not in known]
        if not fresh and not func._schema.is_mutable:  # noqa: SLF001 - torch has no public way to ask
            return result
        name = ".".join(str(func).split(".")[:2])
        for each in fresh:
            self._hold(each, path, name)
        if self._phase(node) is Phase.FORWARD:
            self._used |= dict.fromkeys(known, len(self.operations))
        written = fresh or given[:1]
        self.seconds.append(end - begin)
        self.operations.append(
            Operation(
                name,
                self._phase(node),
                path,
                tuple(tuple(each.shape) for each in taken),
                tuple(tuple(each.shape) for each in given),
                str((taken or given)[0].dtype).removeprefix("torch.") if taken or given else "",
                tuple(_settings(func, args, kwargs)),
                _flops(func, args, kwargs, result),
                sum(map(_nbytes, _distinct(taken))) + sum(map(_nbytes, written)),
                exchanged(name, args),
            )
        )
        return result

    def _phase(self, node: Any) -> Phase:
        if self.phase is not None:
            return self.phase
        return Phase.FORWARD if node is None else Phase.BACKWARD

    def _path(self, node: Any) -> str:
        if node is not None:
            return self._sequence.get(node._sequence_nr(), "")  # noqa: SLF001 - torch has no public way to ask
        path = "" if self.phase is not None else self._caller()
        self._sequence[torch.autograd._get_sequence_nr() - 1] = path  # type: ignore[attr-defined] # noqa: SLF001 - as above
        return path

    def _caller(self) -> str:
        """Return the path of the innermost module at work: one whose forward runs, or that the engine runs itself."""
        frame = sys._getframe(2)  # noqa: SLF001 - the way to see who calls
        while frame is not None:
            code = frame.f_code
            local = "self" if code.co_name == "forward" else "module" if runs_layer(code) else ""
            found: str | None = self._paths.get(id(frame.f_locals.get(local))) if local else None
            if found is not None:
                return found
            frame = frame.f_back  # type: ignore[assignment] # the outermost has none
        return ""

    def _hold(self, tensor: Tensor, path: str, name: str) -> None:
        """Write down memory that was made, and when it is gone."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - tensors without data have no address
        if key in self._live:
            return
        self._live[key] = storage.nbytes(), len(self.operations), path, name, tuple(tensor.shape)
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        nbytes, made, path, name, shape = self._live.pop(key)
        used = max(made, self._used.pop(key, made))
        self._gone.append(Allocation(nbytes, made, max(made, len(self.operations) - 1), path, name, shape, used))

    def _hook(self, name: str) -> Any:
        def ready(weight: Tensor) -> None:
            self.gradients.append(Gradient(name, _nbytes(weight), len(self.operations)))

        return ready


def _settings(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[object]:
    """Yield the arguments that are no tensors, in the order of the operator's schema; those left out as it has them."""
    for place, each in enumerate(func._schema.arguments):  # noqa: SLF001 - torch has no public way to ask
        value = args[place] if place < len(args) else kwargs.get(each.name, each.default_value)
        if isinstance(value, _PLAIN):
            yield value
        elif isinstance(value, _LISTS) and all(isinstance(one, _PLAIN) for one in value):
            yield tuple(value)


def _key(tensor: Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - as above
    return key


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _distinct(tensors: list[Tensor]) -> Iterator[Tensor]:
    """Yield tensors, of those that look at the same memory one."""
    yield from {_key(each): each for each in tensors}.values()


def _flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    count = flop_registry.get(func._overloadpacket)  # noqa: SLF001 - as torch's own counter asks
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))
