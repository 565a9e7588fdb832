"""shard: an ordinary network, made to run on blocks together with the other ranks of its sample group."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.blocks import Blocks
from voxload.engine.exchange.p2p import exchange_of
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.handshake import Greeting, agreed
from voxload.engine.network import LocalPlan, NetworkPlan, Run, plan_network
from voxload.engine.program import Program, compile_program
from voxload.engine.trace import trace
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

_SEEDS = 2**62
"""Number of seeds for the head's random numbers."""

_STATE_METHODS = ("state_dict", "load_state_dict", "get_extra_state", "set_extra_state")
"""Methods of the outermost module that its split form could not carry over."""


def shard(
    model: nn.Module,
    grid: ProcessGrid,
    *,
    shape: Sequence[int] | None = None,
    exchange: Exchange | None = None,
) -> nn.Module:
    """Return `model` made to run split over `grid`: each rank gives its block and gets the whole result.

    The result has the model's own parameters, under the same names, and the same ``state_dict``; checkpoints of
    either load into the other. Training it under stock ``DistributedDataParallel`` over the whole world gives
    the gradients of the mean of all ranks' losses; since the ranks of a group return the same result, that is
    the mean over the samples, as in one process.

    Parameters
    ----------
    model
        A network whose spatial part (convolutions, poolings, voxel-by-voxel layers) ends with a flatten. With a
        spatial grid of (1, 1, 1) it is returned as it is.
    grid
        This rank's view of the grid.
    shape
        Extents (D, H, W) of the whole volume, in voxels; by default the model's ``input_shape``. Without
        either, they follow from the blocks, on every call.
    exchange
        What carries the messages; by default torch.distributed, which must be initialised. Then all ranks of
        the world must call ``shard`` at the same point, since the first call for a grid makes its process groups.

    Raises
    ------
    UsageError
        When the network does anything that has no split form, by name and before any communication, or when
        the shape does not fit the grid.

    Notes
    -----
    The result takes (B, C, d, h, w) in a floating-point type. Calling it raises the same UsageError or
    InternalError on all ranks of the group when their blocks, types, modes or networks do not fit together,
    and InternalError in bounded time when a rank is lost. One thread at a time may use it.
    """
    if grid.group_size == 1:
        return model
    if isinstance(model, Sharded):
        raise UsageError("shard", found="a model that is already split", expected="an ordinary module")
    whole = tuple(shape) if shape is not None else getattr(model, "input_shape", None)
    source = _Source(model, tuple(count > 1 for count in grid.spatial))
    source.check()
    blocks = None
    if whole is not None:
        blocks = Blocks.of(grid, whole)
        plan_network(source.program(), blocks)
    return Sharded(source, grid, blocks, exchange or exchange_of(grid))


class _Source:
    """The model as it was given, and its programs: one for each combination of training modes."""

    def __init__(self, model: nn.Module, split: tuple[bool, ...]) -> None:
        self.model = model
        self._split = split
        self._programs: dict[tuple[bool, ...], Program] = {}

    def program(self, modes: tuple[bool, ...] | None = None) -> Program:
        """Return the program with the given training mode of every module, by default the model's present modes."""
        modules = list(self.model.modules())
        present = tuple(module.training for module in modules)
        wanted = present if modes is None else modes
        if wanted not in self._programs:
            _set_modes(modules, wanted)
            try:
                # A trace keeps one side of "if self.training"; so each combination has a trace of its own.
                self._programs[wanted] = compile_program(self.model, trace(self.model), self._split)
            finally:
                _set_modes(modules, present)
        return self._programs[wanted]

    def check(self) -> None:
        """Raise UsageError when the model cannot run split, in training or in evaluation."""
        count = sum(1 for _ in self.model.modules())
        if any(getattr(type(self.model), name) is not getattr(nn.Module, name) for name in _STATE_METHODS):
            raise UsageError(
                type(self.model).__name__,
                found=f"its own version of one of {', '.join(_STATE_METHODS)}",
                expected="the state_dict that torch makes",
                remedy="put it into a submodule, whose methods are kept",
            )
        for mode in (True, False):
            self.program((mode,) * count)
        self.program()


class Sharded(nn.Module):
    """A network that runs on blocks; made by `shard`.

    Its module tree is the model's own, except that convolutions and poolings have left their padding to the
    engine. Parameters and buffers are the model's very objects.
    """

    def __init__(self, source: _Source, grid: ProcessGrid, blocks: Blocks | None, exchange: Exchange) -> None:
        super().__init__()
        model = source.model
        layers = {model.get_submodule(path): layer for path, layer in source.program().layers.items()}
        # The dictionaries themselves are shared: whatever replaces a parameter replaces it in both.
        for name in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[name] = model.__dict__[name]
        twins: dict[nn.Module, nn.Module] = {}
        for child, module in model.__dict__["_modules"].items():
            self.add_module(child, _twin(module, layers, twins))
        self.training = model.training
        self.grid = grid
        self.blocks = blocks
        self._source = source
        self._exchange = exchange
        self._plans: dict[tuple[int, Blocks], tuple[NetworkPlan, LocalPlan]] = {}

    def forward(self, x: Tensor) -> Any:
        """Return the network's result for the samples of which `x` is this rank's block."""
        program = self._source.program(tuple(module.training for module in self._mirrored()))
        network = (
            self._plan(program, self.blocks)[0].digest if self.blocks else zlib.crc32(program.fingerprint.encode())
        )
        seed = int(torch.randint(_SEEDS, ()))
        greeting = Greeting.of(x, network=network, modes=self._modes(x), seed=seed)
        blocks, seed = agreed(self._exchange.share(greeting.numbers), self.grid, self.blocks)
        plan = self._plan(program, blocks)[1]
        return Run(self, plan, self._exchange, seed)(program, x)

    def _plan(self, program: Program, blocks: Blocks) -> tuple[NetworkPlan, LocalPlan]:
        """Return the plan for a cut of the volume, made at its first use."""
        key = id(program), blocks
        if key not in self._plans:
            plan = plan_network(program, blocks)
            self._plans[key] = plan, plan.at(self.grid.coords)
        return self._plans[key]

    def _modes(self, x: Tensor) -> int:
        """Return a number for what decides which backward messages there will be."""
        flags = (torch.is_grad_enabled(), x.requires_grad, *(weight.requires_grad for weight in self.parameters()))
        return zlib.crc32(repr(flags).encode())

    def _mirrored(self) -> list[nn.Module]:
        """Return this tree's modules in the order of the model's own."""
        return [self.get_submodule(name) for name, _ in self._source.model.named_modules()]

    def extra_repr(self) -> str:
        """Return the grid, for ``print``."""
        return f"spatial={self.grid.spatial}, rank={self.grid.rank}"


def _twin(
    module: nn.Module | None, layers: dict[nn.Module, nn.Module], twins: dict[nn.Module, nn.Module]
) -> nn.Module | None:
    """Return `module` with the given `layers` in it; what holds none of them is returned as it is."""
    if module is None:  # a layer that the model leaves out, such as an optional normalisation
        return None
    if module in twins:
        return twins[module]
    if module in layers:
        twin = layers[module]
    elif not any(inner in layers for inner in module.modules()):
        twin = module
    else:
        twin = copy.copy(module)
        twin.__dict__["_modules"] = {}
        for name, child in module.__dict__["_modules"].items():
            twin.add_module(name, _twin(child, layers, twins))
    twins[module] = twin
    return twin


def _set_modes(modules: Sequence[nn.Module], modes: Sequence[bool]) -> None:
    """Set the training mode of each module by itself."""
    for module, mode in zip(modules, modes, strict=True):
        module.training = mode
