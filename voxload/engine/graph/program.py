"""Program: a traced network, each operation with its split form; everything without one is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx, nn

from voxload.engine.graph.classify import BLOCKS, Classifier, Place, Verdict
from voxload.engine.layers.dropout import Dropped
from voxload.engine.layers.form import Form
from voxload.engine.layers.supported import DETERMINISTIC, DETERMINISTIC_FUNCTIONS, DETERMINISTIC_METHODS
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the network."""

    site: int
    """Its number."""
    node: fx.Node
    """The operation as torch.fx recorded it."""
    place: Place
    """Where its result lives."""
    form: Form | None
    """Its split form, when it is a layer on blocks that is more than voxel by voxel."""
    reassembles: bool
    """Whether its input is made whole first."""
    moves_inputs: bool
    """Whether its inputs may have to be brought to another cut first."""
    may_draw: bool
    """Whether it may draw random numbers, which must then be the same on all ranks of a group."""

    @property
    def is_cut(self) -> bool:
        """Whether its result is cut over the ranks."""
        return self.place in BLOCKS


@dataclass(frozen=True, slots=True)
class Program:
    """A network that can run on blocks."""

    steps: tuple[Step, ...]
    """The operations, in order."""
    layers: dict[str, nn.Module]
    """Layers as they run on blocks, by their path in the model."""
    fingerprint: str
    """Text that two ranks have alike when they run the same network."""

    def __deepcopy__(self, memo: dict[int, object]) -> Program:
        # Frozen, and it names layers by path: a copied model runs the same program on its own layers.
        return self


def compile_program(model: nn.Module, graph: fx.Graph, split: tuple[bool, ...], *, columns: bool = False) -> Program:
    """Return the program of `model`, whose operations `graph` lists, for volumes split along some axes.

    Parameters
    ----------
    model
        The network; it is only looked at.
    graph
        Its operations, from `trace`.
    split
        Whether a volume is split, per axis (d, h, w).
    columns
        Whether dense layers behind a flatten take the columns of their own block.

    Raises
    ------
    UsageError
        For the first operation that cannot run on blocks exactly. Nothing has been sent by then.
    """
    classifier = Classifier(model, split, columns=columns)
    layers: dict[str, nn.Module] = {}
    steps = []
    for site, node in enumerate(graph.nodes):
        verdict = classifier.verdict(node, site)
        if verdict.layer is not None:
            layers.setdefault(str(node.target), verdict.layer)
        steps.append(_step(model, node, site, verdict))
    _refuse_double_use(model, steps, layers)
    return Program(tuple(steps), layers, "\n".join(_describe(model, step) for step in steps))


def _step(model: nn.Module, node: fx.Node, site: int, verdict: Verdict) -> Step:
    """Return the step of `node`."""
    joins = verdict.is_cut_input and verdict.place is Place.BLOCK and len(node.all_input_nodes) > 1
    moves = verdict.reassembles or (verdict.form is None and joins) or (node.op == "output" and verdict.is_cut_input)
    draws = not verdict.is_cut_input and verdict.form is None and _may_draw(model, node)
    return Step(site, node, verdict.place, verdict.form, verdict.reassembles, moves, draws)


def _refuse_double_use(model: nn.Module, steps: Iterable[Step], layers: dict[str, nn.Module]) -> None:
    """Raise UsageError for a layer that runs on blocks and on the whole: on blocks it has lost its padding."""
    on_blocks = {model.get_submodule(path): path for path in layers}
    for step in steps:
        if step.node.op != "call_module" or step.form is not None:
            continue
        for module in model.get_submodule(str(step.node.target)).modules():
            if module in on_blocks:
                raise UsageError(
                    f"layer {on_blocks[module]!r} ({type(module).__name__})",
                    found="use on a split volume and after the flatten",
                    remedy="use two layers that share their parameters",
                )


def _may_draw(model: nn.Module, node: fx.Node) -> bool:
    """Tell whether an operation of the head may draw random numbers; what is not known may."""
    if node.op == "call_module":
        return any(type(module) not in DETERMINISTIC for module in model.get_submodule(str(node.target)).modules())
    if node.op == "call_method":
        return node.target not in DETERMINISTIC_METHODS
    return node.op == "call_function" and node.target not in DETERMINISTIC_FUNCTIONS


def _describe(model: nn.Module, step: Step) -> str:
    """Return one line that tells `step` from any other that computes something else."""
    node = step.node
    layer = f" {model.get_submodule(str(node.target))!r}" if node.op == "call_module" else ""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    form = "" if step.form is None or isinstance(step.form, Dropped) else f" {step.form}"
    return f"{node.name} = {node.op} {target}{layer} {node.args} {node.kwargs} {step.place.name}{form}"
