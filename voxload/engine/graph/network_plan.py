"""NetworkPlan: what every operation of a program moves for one shape of volume."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import fx

from voxload.engine.arithmetic.axis_plan import AxisPlan, PaddingMode, Part, plan_axis
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.arithmetic.windows import even_bounds
from voxload.engine.graph.classify import Place
from voxload.engine.graph.program import Program, Step
from voxload.engine.layers.form import Form
from voxload.errors import UsageError


def plan_whole(blocks: Blocks) -> tuple[AxisPlan, ...]:
    """Return the gathers, axis by axis, after which every rank has the whole volume."""
    return tuple(
        plan_axis(axis, bounds, ((0, bounds[-1]),) * (len(bounds) - 1), PaddingMode.CONSTANT)
        for axis, bounds in enumerate(blocks.bounds)
    )


def plan_move(blocks: Blocks, target: Blocks) -> tuple[AxisPlan, ...]:
    """Return the gathers, axis by axis, that take a volume from `blocks` to the cut `target`."""
    return tuple(
        plan_axis(axis, old, tuple(pairwise(new)), PaddingMode.CONSTANT)
        for axis, (old, new) in enumerate(zip(blocks.bounds, target.bounds, strict=True))
    )


def parts_of(plans: Sequence[AxisPlan], coords: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts of the rank at `coords`, without axes on which nothing moves."""
    return tuple(plan.at(coords[plan.axis]) for plan in plans if not plan.idle)


Move = tuple[AxisPlan, ...]
"""Gathers, axis by axis, that bring a volume to another cut."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The plans of all operations of a program, for all ranks of a sample group and one cut of the volume."""

    layers: dict[int, LayerPlan]
    """Plan of each layer that has a form, by its site."""
    moves: dict[int, dict[str, Move]]
    """By the site of an operation: how inputs, by their names, are brought to the cut that the operation takes."""
    cuts: dict[str, Blocks]
    """Cut of each operation's result, by its name, where it is cut."""
    digest: int
    """A 63-bit number that two ranks have alike when their plans and networks are alike."""

    def at(self, program: Program, coords: Sequence[int]) -> LocalPlan:
        """Return the part of the rank at `coords` of its sample group."""
        forms = tuple(step.form for step in program.steps)
        tiles = tuple(self.layers[step.site].at(coords) if step.site in self.layers else None for step in program.steps)
        parts = tuple(
            tuple(
                parts_of(self.moves[step.site][source.name], coords)
                if source.name in self.moves.get(step.site, {})
                else ()
                for source in step.node.all_input_nodes
            )
            for step in program.steps
        )
        return LocalPlan(forms, tiles, parts)


@dataclass(frozen=True, slots=True, eq=False)
class LocalPlan:
    """One rank's part of a NetworkPlan; tuples by site."""

    forms: tuple[Form | None, ...]
    """Split form of each layer that has one."""
    tiles: tuple[Tile | None, ...]
    """This rank's part of each layer that has a form."""
    parts: tuple[tuple[tuple[Part, ...], ...], ...]
    """What is fetched for each input of an operation before it runs, where inputs are moved."""


def plan_network(program: Program, blocks: Blocks, *, min_width: int = 0) -> NetworkPlan:
    """Return what the operations of `program` move for a volume that is cut into `blocks`.

    Pure: every rank gets the same plan. An operation that joins volumes gets them in the cut of the first; a volume
    that leaves the network gets the cut that the grid gives to its extents.

    Parameters
    ----------
    program
        The network.
    blocks
        Cut of its input.
    min_width
        An axis whose blocks would have fewer voxels than this goes to fewer ranks; 0 leaves all their part.

    Raises
    ------
    UsageError
        When a layer does not fit the volume, or an operation joins volumes of different extents.
    """
    planner = _Planner(program, blocks, min_width)
    for step in program.steps:
        planner.plan(step)
    text = f"{program.fingerprint}\n{blocks}\n{planner.layers}\n{planner.moves}"
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    cuts = {node.name: cut for node, cut in planner.cuts.items()}
    return NetworkPlan(planner.layers, planner.moves, cuts, digest)


class _Planner:
    """Plans one operation after the other."""

    def __init__(self, program: Program, blocks: Blocks, min_width: int) -> None:
        self._steps = {step.node: step for step in program.steps}
        self._start = blocks
        self._min_width = min_width
        self.cuts: dict[fx.Node, Blocks] = {}
        self.layers: dict[int, LayerPlan] = {}
        self.moves: dict[int, dict[str, Move]] = {}

    def plan(self, step: Step) -> None:
        """Plan one operation; those whose values it takes are planned."""
        node = step.node
        inputs = [source for source in node.all_input_nodes if source in self.cuts]
        if node.op == "placeholder":
            self.cuts[node] = self._start
        elif node.op == "output" and inputs:
            self._move(step, inputs, _even(self.cuts[inputs[0]]))
        elif not inputs:
            return
        elif step.form is not None:
            layer = step.form.plan(self.cuts[inputs[0]], self._wanted(node), min_width=self._min_width)
            self.layers[step.site] = layer
            if step.is_cut:
                self.cuts[node] = layer.result
        elif step.reassembles:
            self.moves[step.site] = {source.name: plan_whole(self.cuts[source]) for source in inputs}
        elif step.is_cut:
            self._join(step, inputs)

    def _join(self, step: Step, inputs: list[fx.Node]) -> None:
        """Plan an operation that leaves voxels where they are; several volumes are brought to the first one's cut."""
        first = self.cuts[inputs[0]]
        different = [source for source in inputs if self.cuts[source] != first]
        for source in different:
            unlike = self.cuts[source].shape != first.shape
            if unlike or step.place is not Place.BLOCK:
                raise UsageError(
                    f"operation {step.node.name!r}",
                    found=f"volumes cut differently ({first}; {self.cuts[source]})",
                    expected="volumes of one shape" if unlike else "channels in the second dimension",
                )
        if different:
            self._move(step, different, first)
        self.cuts[step.node] = first

    def _move(self, step: Step, inputs: list[fx.Node], target: Blocks) -> None:
        """Plan to bring `inputs` to the cut `target`."""
        moves = {source.name: plan_move(self.cuts[source], target) for source in inputs if self.cuts[source] != target}
        if moves:
            self.moves[step.site] = moves

    def _wanted(self, node: fx.Node) -> Blocks | None:
        """Return the cut of the first volume that the result of `node` will be joined with, if it is known by now.

        So a decoder's blocks are made where the encoder's are, and no voxel moves twice.
        """
        seen, waiting = {node}, [node]
        while waiting:
            for user in waiting.pop(0).users:
                step = self._steps[user]
                if user in seen or not step.is_cut or step.reassembles:
                    continue
                others = [self.cuts[source] for source in user.all_input_nodes if source in self.cuts]
                if others:
                    return others[0]
                seen.add(user)
                if step.form is None:
                    waiting.append(user)
        return None


def _even(blocks: Blocks) -> Blocks:
    """Return the cut that the grid gives to a volume of these extents."""
    return Blocks(tuple(even_bounds(bounds[-1], len(bounds) - 1) for bounds in blocks.bounds))
