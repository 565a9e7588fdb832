"""Sharded: a network that runs on blocks."""

from __future__ import annotations

import copy
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.graph.codegen import ForwardPass, ModuleForwards, generate_forwards
from voxload.engine.graph.faithful import Sample, is_faithful, require_faithful
from voxload.engine.graph.network_plan import LocalPlan, NetworkPlan, plan_network
from voxload.engine.graph.program import Program, compile_program
from voxload.engine.graph.trace import trace
from voxload.engine.layers.form import with_forward
from voxload.engine.model.guards import TraceGuards
from voxload.engine.run.handshake import Greeting, agree, agreed, ticket_of
from voxload.engine.run.join import Chooser
from voxload.engine.run.tensors import autocast_type
from voxload.engine.run.torch_compile import require_whole_graph
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

_SEEDS = 2**62
"""Number of seeds for a pass's random numbers."""
_STATE_METHODS = ("state_dict", "load_state_dict", "get_extra_state", "set_extra_state")
"""Methods of the outermost module that its split form could not carry over."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProgram:
    """A program and the functions that carry it out."""

    program: Program
    """The operations."""
    regions: ModuleForwards
    """The functions."""

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledProgram:
        # Both name layers by path: a copied model runs them on its own layers.
        return self


class TracedModel:
    """The model as it was given, and its programs: one for each combination of training modes.

    Parameters
    ----------
    model
        The network.
    split
        Whether a volume is split, per axis (d, h, w).
    columns
        Whether dense layers behind a flatten take the columns of their own block.
    """

    def __init__(self, model: nn.Module, split: tuple[bool, ...], *, columns: bool = False) -> None:
        self._columns = columns
        self.model = model
        self.programs: dict[tuple[bool, ...], CompiledProgram] = {}
        self._split = split
        self._graphs: dict[tuple[bool, ...], fx.Graph] = {}

    def program(self, modes: tuple[bool, ...] | None = None) -> CompiledProgram:
        """Return the program with the given training mode of every module, by default the model's present modes."""
        modules = list(self.model.modules())
        present = tuple(module.training for module in modules)
        wanted = present if modes is None else modes
        if wanted not in self.programs:
            with modes_set(modules, wanted):
                # A trace keeps one side of "if self.training"; so each combination has a trace of its own.
                self._graphs[wanted] = trace(self.model)
                program = compile_program(self.model, self._graphs[wanted], self._split, columns=self._columns)
            self.programs[wanted] = CompiledProgram(program, generate_forwards(self.model, program))
        return self.programs[wanted]

    def compare(self, modes: tuple[bool, ...], sample: Sample) -> None:
        """Raise UsageError where what was traced in these modes is not what forward does; each is compared once."""
        if modes in self._graphs:
            with modes_set(list(self.model.modules()), modes):
                require_faithful(self.model, self._graphs[modes], sample)
            del self._graphs[modes]

    def trust(self) -> None:
        """Make the program of the present modes and compare it with nothing: for who asks what runs, not what comes."""
        self.program()
        self._graphs.clear()

    def check(self, shape: Sequence[int] | None = None) -> None:
        """Raise UsageError when the model cannot run split, in training or in evaluation; `shape` is the volume's.

        What no volume could be found for is compared with its trace when the first one comes.
        """
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
        modules = list(self.model.modules())
        for modes, graph in list(self._graphs.items()):
            with modes_set(modules, modes):
                if is_faithful(self.model, graph, shape):
                    del self._graphs[modes]


class Sharded(nn.Module):
    """A network that runs on blocks; made by `shard`.

    Its module tree is the model's own, except that layers with a split form have left what lies beyond a block to the
    engine. Parameters and buffers are the model's very objects. What is its own has names that begin with _voxload:
    a model's layers may have any other, such as blocks.
    """

    def __init__(
        self,
        source: TracedModel,
        cut: tuple[ProcessGrid, Blocks | None, int],
        exchange: Exchange,
        *,
        chooser: Chooser,
    ) -> None:
        super().__init__()
        self._voxload_chooser = chooser
        model = source.model
        self._voxload_grid, self._voxload_blocks, self._voxload_min_width = cut
        programs = list(source.programs.values())
        layers = {model.get_submodule(path): layer for each in programs for path, layer in each.program.layers.items()}
        called = {model.get_submodule(path) for each in programs for path in each.regions.modules}
        # The dictionaries themselves are shared: whatever replaces a parameter replaces it in both.
        for name in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[name] = model.__dict__[name]
        twins: dict[nn.Module, nn.Module] = {}
        for child, module in model.__dict__["_modules"].items():
            self.add_module(child, _twin(module, layers, called, twins))
        self.training = model.training
        self._voxload_source = source
        self._voxload_exchange = exchange
        self._voxload_plans: dict[tuple[tuple[bool, ...], Blocks], tuple[NetworkPlan, LocalPlan]] = {}
        self._voxload_local: dict[tuple[bool, ...], LocalPlan] = {}
        # In the order of the model's own modules; a plain list, so that they are not registered twice.
        self.__dict__["_voxload_mirrored"] = [self.get_submodule(name) for name, _ in model.named_modules()]
        self._voxload_unchanged = TraceGuards(model, self._voxload_mirrored)
        self._voxload_agreement = _Agreement(self)
        if self._voxload_blocks is not None:
            for modes, each in source.programs.items():
                self._voxload_plan(modes, each, self._voxload_blocks)

    _voxload_mirrored: list[nn.Module]
    """This tree's modules in the order of the model's own."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_voxload_agreement"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call] # torch leaves it untyped
        self._voxload_agreement = _Agreement(self)  # a copy is a network of its own

    def forward(self, x: Tensor) -> Any:
        """Return the network's result for the samples of which `x` is this rank's block."""
        modes = tuple(module.training for module in self._voxload_mirrored)
        if torch.compiler.is_compiling():
            require_whole_graph()
            compiled, plan = self._voxload_ready(modes)
            seed = agree(x, self._voxload_agreement.ticket)
        else:
            changed = self._voxload_unchanged.difference()
            compiled = self._voxload_source.programs.get(modes) or self._voxload_source.program(modes)
            # All ranks hear of a change on one before any of them sends a voxel.
            blocks, seed = self._voxload_agreed(x, compiled, modes=self._voxload_flags(x), refusal=changed)
            self._voxload_source.compare(modes, Sample(x.shape[1], blocks.shape))
            plan = self._voxload_plan(modes, compiled, blocks)[1]
        forward_pass = ForwardPass(plan, compiled.regions.forwards, self._voxload_exchange, self._voxload_chooser, seed)
        return compiled.regions.forwards[0](self, x, forward_pass)

    def _voxload_agreed(
        self, x: Tensor, compiled: CompiledProgram | None = None, *, modes: int = 0, refusal: UsageError | None = None
    ) -> tuple[Blocks, Tensor]:
        """Return the cut of the volume and the seed that the ranks of the group agree on for a pass over `x`.

        Raises the same UsageError or InternalError on all of them where they do not fit together; `refusal` on this
        one when the others have heard of it.
        """
        current = tuple(module.training for module in self._voxload_mirrored)
        compiled = compiled or self._voxload_source.program(current)
        network = zlib.crc32(compiled.program.fingerprint.encode())
        if self._voxload_blocks is not None:
            network = self._voxload_plan(current, compiled, self._voxload_blocks)[0].digest
        seed = int(torch.randint(_SEEDS, ()))
        greeting = Greeting.of(x, network=network, modes=modes, seed=seed, refused=refusal is not None)
        rows = self._voxload_exchange.share(greeting.numbers)
        if refusal is not None:
            raise refusal
        blocks, seed = agreed(rows, self._voxload_grid, self._voxload_blocks)
        return blocks, torch.tensor(seed, dtype=torch.int64)

    def _voxload_ready(self, modes: tuple[bool, ...]) -> tuple[CompiledProgram, LocalPlan]:
        """Return program and plan without making any, for a compiler that follows this pass."""
        if self._voxload_blocks is None or modes not in self._voxload_source.programs:
            raise UsageError(
                "torch.compile of a split network",
                found="no shape"
                if self._voxload_blocks is None
                else "a combination of training modes that was never run",
                remedy="give shape= to voxload.engine.shard"
                if self._voxload_blocks is None
                else "run it once uncompiled",
            )
        return self._voxload_source.programs[modes], self._voxload_local[modes]

    def _voxload_plan(
        self, modes: tuple[bool, ...], compiled: CompiledProgram, blocks: Blocks
    ) -> tuple[NetworkPlan, LocalPlan]:
        """Return the plan for a cut of the volume, made at its first use."""
        key = modes, blocks
        if key not in self._voxload_plans:
            plan = plan_network(compiled.program, blocks, min_width=self._voxload_min_width)
            self._voxload_plans[key] = plan, plan.at(compiled.program, self._voxload_grid.coords)
            if blocks == self._voxload_blocks:
                self._voxload_local[modes] = self._voxload_plans[key][1]
        return self._voxload_plans[key]

    def _voxload_flags(self, x: Tensor) -> int:
        """Return a number for what decides which messages there will be and what they hold."""
        flags = (torch.is_grad_enabled(), x.requires_grad, *(weight.requires_grad for weight in self.parameters()))
        return zlib.crc32(repr((autocast_type(x.device.type), flags)).encode())

    def extra_repr(self) -> str:
        """Return the grid, for ``print``."""
        return f"spatial={self._voxload_grid.spatial}, rank={self._voxload_grid.rank}"


class _Agreement:
    """Finds a network for a compiled pass, as long as the network lives."""

    def __init__(self, network: Sharded) -> None:
        self._network = weakref.ref(network)
        self.ticket = ticket_of(self)

    def agreed(self, x: Tensor) -> tuple[Any, Tensor]:
        """See Agreeing."""
        network = self._network()
        if network is None:
            raise InternalError("a compiled split network", found="a network that is gone")
        return network._voxload_agreed(x)  # noqa: SLF001 - its own half


def _twin(
    module: nn.Module | None,
    layers: dict[nn.Module, nn.Module],
    called: set[nn.Module],
    twins: dict[nn.Module, nn.Module],
) -> nn.Module | None:
    """Return `module` with the given `layers` in it and the regions of `called` modules as their forwards.

    What holds none of them is returned as it is.
    """
    if module is None:  # a layer that the model leaves out, such as an optional normalisation
        return None
    if module in twins:
        return twins[module]
    if module in layers:
        twin = layers[module]
        twin.training = module.training  # it may have been made while a program for another mode was traced
    elif not any(inner in layers or inner in called for inner in module.modules()):
        twin = module
    else:
        twin = with_forward(module, _entered) if module in called else copy.copy(module)
        twin.__dict__["_modules"] = {}
        for name, child in module.__dict__["_modules"].items():
            twin.add_module(name, _twin(child, layers, called, twins))
    twins[module] = twin
    return twin


def _entered(module: nn.Module, *values: Any, forward_pass: ForwardPass, region: int) -> Any:
    """Carry out one call of a module of the user's."""
    return forward_pass.forwards[region](module, *values, forward_pass)


@contextmanager
def modes_set(modules: Sequence[nn.Module], modes: Sequence[bool]) -> Iterator[None]:
    """Set the training mode of each module by itself, for a while."""
    present = [module.training for module in modules]
    for module, mode in zip(modules, modes, strict=True):
        module.training = mode
    try:
        yield
    finally:
        for module, mode in zip(modules, present, strict=True):
            module.training = mode
