"""Random numbers of compiled passes, where ranks cannot have one state of a generator.

Every number is a hash of a seed that the ranks have agreed on and of its place in the whole tensor, as dropout's are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from voxload.engine.forward.block import runner_of
from voxload.engine.forward.rule import Context
from voxload.engine.forward.rules.randomness import DISTRIBUTIONS, DROPOUTS, Drop, uniform
from voxload.engine.forward.sharding import Sharding
from voxload.errors import UsageError


class Seeds:
    """Seeds of the calls that draw, one after the other, from that of the pass, an int64 scalar."""

    def __init__(self, seed: Tensor) -> None:
        self._seed, self._count = seed, 0

    def __call__(self) -> Tensor:
        """Return the next one; raises UsageError where the call may be made again in the backward pass."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:  # noqa: SLF001, FBT003 - torch has no public way to ask
            raise UsageError(
                "torch.compile of a split network",
                found="random numbers in a part of forward that is checkpointed, which would be others the second time",
                expected="checkpointing of parts that draw none, such as by dropout",
            )
        self._count += 1
        return self._seed + self._count


_LIKE = frozenset([torch.rand_like, torch.randn_like])
_OTHERS = frozenset({"generator", "out", "layout", "memory_format", "pin_memory", "names"})
"""Arguments that say more than shape, type and device, unless they have one of the values `_USUAL`."""
_USUAL = (None, False, torch.strided, torch.preserve_format, torch.contiguous_format)


def _places(shape: Sequence[int]) -> list[Tensor]:
    return [torch.arange(extent, dtype=torch.int64) for extent in shape]


class HashedDraws(TorchFunctionMode):
    """Takes calls that draw the numbers of a tensor that every rank has whole; blocks have rules of their own."""

    def __init__(self, here: Context) -> None:
        super().__init__()
        self._here = here

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Carry out one call."""
        given = dict(kwargs or {})
        if runner_of(args, given) is not None or any(given.get(name) not in _USUAL for name in _OTHERS):
            return func(*args, **given)
        if func in DROPOUTS:
            x: Tensor = args[0] if args else given["input"]
            return Drop(Sharding.whole(x.shape)).run(func, args, given, self._here)
        if func in DISTRIBUTIONS:
            return self._made(func, args, given)
        if func in {torch.bernoulli, Tensor.bernoulli} and len(args) == 1 and not given:
            return (self._uniform(args[0], torch.float32) < args[0]).to(args[0].dtype)
        if func is Tensor.bernoulli_:
            share = args[1] if len(args) > 1 else given.get("p", 0.5)
            return args[0].copy_(self._uniform(args[0], torch.float32) < share)
        return func(*args, **given)

    def _made(self, function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Tensor:
        """Return a tensor that is made of random numbers."""
        if function in _LIKE:
            like: Tensor = args[0] if args else given["input"]
            shape, dtype, device = like.shape, given.get("dtype") or like.dtype, given.get("device") or like.device
        else:
            sizes = given.get("size", args)
            shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
            dtype = given.get("dtype") or torch.get_default_dtype()
            device = given.get("device") or torch.get_default_device()
        made = DISTRIBUTIONS[function](_places(shape), self._here.seeds(), dtype, torch.device(device))
        return made.requires_grad_() if given.get("requires_grad") else made

    def _uniform(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        return uniform(_places(like.shape), self._here.seeds(), dtype, like.device)


class NoDraws(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it untyped
    """Refuses all other random numbers: the generators of two ranks are at different places when their graphs run."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let one operation through."""
        if torch.Tag.nondeterministic_seeded in func.tags and not _drops_nothing(func, args, kwargs or {}):
            raise UsageError(
                "torch.compile of a split network",
                found=f"{func}, which draws random numbers that all ranks must have alike",
                expected="dropout, rand, randn, rand_like, randn_like or bernoulli",
                remedy="draw other ones outside and hand them to forward, or leave the network uncompiled",
            )
        return func(*args, **(kwargs or {}))


def _drops_nothing(function: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a function of torch that could drop elements, such as attention, is asked to drop none."""
    given = {one.name: one.default_value for one in function._schema.arguments}  # noqa: SLF001 - where torch has it
    given |= dict(zip(given, args, strict=False)) | kwargs
    return given.get("dropout_p") == 0
