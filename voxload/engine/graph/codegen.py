"""Generated code: a program as ordinary forwards of the model's own modules, one for each call of each module.

Regions: a program as ordinary forwards of the model's own modules, one for each call of each module. A flat list of
operations would lose the modules that the user has nested them in, and with these whatever is attached to a module:
FSDP's gathering of its parameters, activation checkpointing, compilation, hooks. So each call of a module in the
traced program becomes a function of its own, written by torch.fx, and calls its inner ones as modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, fx, nn

from voxload.engine.arithmetic.layer_plan import Tile
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.graph.classify import Place
from voxload.engine.graph.network_plan import LocalPlan
from voxload.engine.graph.program import Program, Step
from voxload.engine.layers.dropout import Dropped
from voxload.engine.layers.form import Form
from voxload.engine.layers.pooling import Reduction
from voxload.engine.run.collectives import gather
from voxload.engine.run.join import Chooser
from voxload.errors import InternalError

Forward = Callable[..., Any]
"""``forward(module, *tensors, forward_pass)``."""


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPass:
    """What is fixed while a volume goes through the network; the PassContext of its layers."""

    plan: LocalPlan
    """This rank's part of the plan."""
    forwards: tuple[Forward, ...]
    """What the model's modules do, by the number that a call names."""
    exchange: Exchange
    """Carries the messages."""
    chooser: Chooser
    """Says how convolutions join halos with blocks."""
    seed: Tensor
    """Seed of all random numbers, an int64 scalar, the same on all ranks of the sample group."""


def enter(module: nn.Module, region: int, forward_pass: ForwardPass, *values: Any) -> Any:
    """Call a module of the user's with what its traced call used, and return what was used of its results."""
    return module(*values, forward_pass=forward_pass, region=region)


def item(values: tuple[Any, ...], index: int) -> Any:
    """Return one of a module's results."""
    return values[index]


def layer(module: nn.Module, forward_pass: ForwardPass, site: int, x: Tensor) -> Tensor:
    """Return what a layer with a split form makes of this rank's block."""
    form, tile = _planned(forward_pass, site)
    return form.run(module, x, tile, forward_pass)


def drop(module: nn.Module, forward_pass: ForwardPass, site: int, x: Tensor) -> Tensor:
    """Return what dropout makes of a value that every rank has: the same on all of them."""
    form = forward_pass.plan.forms[site]
    if not isinstance(form, Dropped):
        raise InternalError(f"operation {site}", found="no dropout")
    y: Tensor = module(x, (0,) * x.ndim, forward_pass.seed + form.site)
    return y


def mean(forward_pass: ForwardPass, site: int, x: Tensor, keeps: bool) -> Tensor:
    """Return the mean over a volume, (B, C), or (B, C, 1, 1, 1) where the dimensions are kept."""
    form, tile = _planned(forward_pass, site)
    if not isinstance(form, Reduction):
        raise InternalError(f"operation {site}", found="no mean")
    y = form.reduced(x, tile, forward_pass)
    return y if keeps else y.flatten(1)


def move(forward_pass: ForwardPass, site: int, index: int, x: Tensor) -> Tensor:
    """Return input number `index` of an operation in the cut in which it is taken."""
    for part in forward_pass.plan.parts[site][index]:
        x = gather(x, part, fill=0.0, exchange=forward_pass.exchange)
    return x


def begin_draw(forward_pass: ForwardPass, site: int) -> list[tuple[str, Tensor]]:
    """Set torch's random numbers to those that all ranks of the group draw here; return the states of before."""
    states = [("cpu", torch.get_rng_state())]
    if torch.cuda.is_available():
        states.append(("cuda", torch.cuda.get_rng_state()))
    torch.manual_seed(int(forward_pass.seed) + site)
    return states


def end_draw(states: list[tuple[str, Tensor]]) -> None:
    """Go on with the random numbers of before."""
    for device, state in states:
        if device == "cuda":
            torch.cuda.set_rng_state(state)
        else:
            torch.set_rng_state(state)


def _planned(forward_pass: ForwardPass, site: int) -> tuple[Form, Tile]:
    """Return the form and this rank's tile of the layer at `site`."""
    form, tile = forward_pass.plan.forms[site], forward_pass.plan.tiles[site]
    if form is None or tile is None:
        raise InternalError(f"operation {site}", found="no plan")
    return form, tile


@dataclass(frozen=True, slots=True)
class ModuleForwards:
    """The functions of one program; number 0 is that of the whole model."""

    forwards: tuple[Forward, ...]
    """By the number that a call names."""
    modules: frozenset[str]
    """Paths of the modules, other than the root, that are called by number."""


@dataclass(slots=True)
class _Writer:
    """Writes the functions of one program."""

    model: nn.Module
    forwards: list[Forward | None] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)

    def region(self, steps: Sequence[Step], depth: int, path: str, inputs: Sequence[fx.Node], outputs: Any) -> int:
        """Write the function that carries out `steps` within the module at `path`; return its number.

        Parameters
        ----------
        steps
            The operations, in order.
        depth
            Number of modules that are entered.
        path
            Path of the innermost of them in the model.
        inputs
            Values from outside that they use.
        outputs
            Values that are used outside, or None where the last step says so.
        """
        number = len(self.forwards)
        self.forwards.append(None)
        graph = fx.Graph()
        values = {node: graph.placeholder(node.name) for node in inputs}
        forward_pass = graph.placeholder("forward_pass")
        frame = _Frame(graph, forward_pass, values, path)
        for key, group in groupby(steps, lambda step: _called(step, depth)):
            inner = list(group)
            if key is None or not self._nested(frame, inner, depth, key[1]):
                for step in inner:
                    frame.emit(step)
        if outputs is not None:
            found = tuple(values[node] for node in outputs)
            graph.output(found[0] if len(found) == 1 else found)
        self.forwards[number] = _compiled(graph)
        return number

    def _nested(self, frame: _Frame, steps: list[Step], depth: int, path: str) -> bool:
        """Write `steps` as a call of the module at `path`; False where they reach for layers outside of it."""
        own = {step.node for step in steps}
        names = [str(step.node.target) for step in steps if step.node.op in {"call_module", "get_attr"}]
        if any(not name.startswith(f"{path}.") for name in names):
            return False
        inputs = list(dict.fromkeys(node for step in steps for node in step.node.all_input_nodes if node not in own))
        outputs = [step.node for step in steps if any(user not in own for user in step.node.users)]
        if not outputs or any(node not in frame.values for node in inputs):
            return False
        number = self.region(steps, depth + 1, path, inputs, outputs)
        self.modules.add(path)
        module = frame.module(path)
        arguments = tuple(frame.values[node] for node in inputs)
        called = frame.graph.call_function(enter, (module, number, frame.forward_pass, *arguments))
        for index, node in enumerate(outputs):
            whole = len(outputs) == 1
            frame.values[node] = called if whole else frame.graph.call_function(item, (called, index))
        return True


@dataclass(frozen=True, slots=True)
class _Frame:
    """A function while it is written."""

    graph: fx.Graph
    forward_pass: fx.Node
    values: dict[fx.Node, fx.Node]
    path: str

    def module(self, path: str) -> fx.Node:
        """Return a reference to the module at `path` of the model, seen from this function's own."""
        return self.graph.get_attr(path.removeprefix(f"{self.path}.") if self.path else path)

    def emit(self, step: Step) -> None:
        """Write one operation."""
        node, graph = step.node, self.graph
        if node.op == "placeholder":
            return
        if step.place is Place.FLAT:  # the dense layer behind it takes the block as it is
            self.values[node] = self.values[node.all_input_nodes[0]]
            return
        if step.form is not None:
            self.values[node] = self._form(step)
            return
        given = dict(self.values)
        for index, source in enumerate(node.all_input_nodes if step.moves_inputs else ()):
            given[source] = graph.call_function(move, (self.forward_pass, step.site, index, given[source]))
        draw = graph.call_function(begin_draw, (self.forward_pass, step.site)) if step.may_draw else None
        copied = graph.node_copy(node, given.__getitem__)
        if node.op in {"call_module", "get_attr"}:
            copied.target = str(node.target).removeprefix(f"{self.path}.") if self.path else node.target
        self.values[node] = copied
        if draw is not None:
            graph.call_function(end_draw, (draw,))

    def _form(self, step: Step) -> fx.Node:
        """Write an operation that has a split form."""
        node = step.node
        x = self.values[node.all_input_nodes[0]]
        if node.op == "call_module":
            where = (self.module(str(node.target)), self.forward_pass, step.site, x)
            whole = not isinstance(step.form, Dropped) or step.place is Place.BLOCK
            return self.graph.call_function(layer if whole else drop, where)
        keeps = step.place is Place.POINT
        return self.graph.call_function(mean, (self.forward_pass, step.site, x, keeps))


def generate_forwards(model: nn.Module, program: Program) -> ModuleForwards:
    """Return the functions by which the modules of `model` carry out `program`."""
    writer = _Writer(model)
    inputs = [step.node for step in program.steps if step.node.op == "placeholder"]
    writer.region(program.steps, 0, "", inputs, None)
    return ModuleForwards(
        tuple(forward for forward in writer.forwards if forward is not None), frozenset(writer.modules)
    )


def _called(step: Step, depth: int) -> tuple[str, str] | None:
    """Return which call of which module a step belongs to, `depth` modules down; None for the function's own."""
    stack = list(step.node.meta.get("nn_module_stack", {}).items())
    inner = stack[:-1] if step.node.op == "call_module" else stack
    if len(inner) <= depth:
        return None
    key, (path, _) = inner[depth]
    return key, path


def _compiled(graph: fx.Graph) -> Forward:
    """Return the function that `graph` describes."""
    code = graph.python_code("self")
    names = dict(code.globals)
    exec(compile(code.src, "<voxload.engine.graph.codegen>", "exec"), names)  # noqa: S102 - written by torch.fx, as GraphModule's
    forward: Forward = names["forward"]
    return forward
