"""search: the setups of a training in order, the best of them traced as the engine will run it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from voxload.errors import UsageError
from voxload.plan.costs.kernels import Measured
from voxload.plan.document import Plan
from voxload.plan.forecast.checkpoints import Checkpointer
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import HOST_BATCHES, Forecast, Oracle, ranked
from voxload.plan.forecast.layers import LayerCost, layer_costs
from voxload.plan.forecast.layerwise import LayerChooser
from voxload.plan.forecast.pipelines import Pipelines
from voxload.plan.forecast.reading import DataSet
from voxload.plan.forecast.setups import Setup, pipelined, setups
from voxload.plan.trace.operation import StepTrace


@dataclass(frozen=True, slots=True)
class Found:
    """Setups of one training on one machine, best first."""

    oracle: Oracle
    goal: str
    setups: tuple[Forecast, ...]
    trace: StepTrace
    """Of the best, as the engine runs it."""
    unlikely: int
    """Setups that were not looked at: no rank could have the memory."""
    refused: tuple[str, ...] = ()
    """Why no layers were chosen for, and of pipelines that were not looked at."""

    @property
    def best(self) -> Forecast:
        """The first."""
        return self.setups[0]

    def by_ranks(self) -> list[Forecast]:
        """Return the best of each number of ranks that fits."""
        found = dict[int, Forecast]()
        for each in self.setups:
            if each.fits:
                found.setdefault(each.setup.ranks, each)
        return [found[ranks] for ranks in sorted(found)]

    def layers(self, prefix: str = "") -> list[LayerCost]:
        """Return what layers of the best take whose path begins so; raises UsageError where there are none."""
        setup = self.best.setup
        costs = layer_costs(self.trace, *self.oracle.speeds(setup), setup.grid)
        chosen = [each for each in costs if each.path.startswith(prefix)]
        if not chosen:
            paths = ", ".join(each.path for each in costs if each.path)
            raise UsageError("layer", found=repr(prefix), expected=f"the beginning of one of {paths}")
        return chosen

    def notes(self) -> list[str]:
        """Return in sentences how sure the figures of the best are."""
        kernels, _ = self.oracle.speeds(self.best.setup)
        near = self.oracle.ranks_on_node(self.best.setup.ranks)
        other = self.oracle.platform.stand_in(near)
        if not isinstance(kernels, Measured):
            return [
                *self.refused,
                "Speeds are published figures, not measured ones: voxload plan calibrate measures them.",
            ]
        kernels.unknown.clear()
        for each in self.trace.operations:
            kernels.seconds(each)
        notes = [*self.refused, f"One operation is off by {kernels.error:.0%} on average, of those that were measured."]
        if other:
            notes.append(f"Messages among {near} ranks of a node were never measured: those among {other} stand in.")
        if kernels.unknown:
            share = sum(kernels.unknown.values()) / max(self.best.time.total, 1e-12)
            most = ", ".join(sorted(kernels.unknown, key=kernels.unknown.__getitem__, reverse=True)[:3])
            notes.append(f"Never measured at such a size, and told from others: {share:.1%} of the step, of {most}.")
        return notes

    def plan(self, machine: str) -> Plan:
        """Return the best as a plan; `machine` is what the machine was called."""
        training, setup, time = self.oracle.training, self.best.setup, self.best.time
        parts = ("forward", "backward", "update", "halos", "sums", "gradients", "waiting")
        return Plan(
            training.model,
            training.sample,
            machine,
            setup.spatial,
            setup.groups,
            setup.samples,
            training.optimizer,
            training.dtype,
            dict(self.best.layers),
            wrapper=training.wrapper,
            stages=setup.stages,
            microbatches=setup.microbatches,
            cuts=self.best.cuts,
            recompute=self.best.recompute,
            staging=HOST_BATCHES * self.oracle.batch_bytes(setup),
            cache=self.best.reading.cache if self.best.reading is not None else 0,
            predicted={
                "step_seconds": self.best.step,
                **{f"{name}_seconds": getattr(time, name) for name in parts},
                "memory_bytes": float(self.best.memory.use.total),
            },
        )


def _again(oracle: Oracle, ordered: Sequence[Forecast], goal: str) -> Iterator[Forecast]:
    """Yield the best setups that do not fit, with modules that run again; of those with least memory, all of them."""
    is_least = goal == "memory"
    wanted = [each for each in ordered if each.setup.stages == 1 and (is_least or not each.fits)]
    chooser = Checkpointer(oracle)
    for each in wanted[:_RECOMPUTED]:
        found = chooser.forecast(each.setup, 1 if is_least else 0)
        if found.recompute:
            yield found


_RECOMPUTED = 12
"""Setups that modules are chosen in."""
_NOT_ALL = "Not all pipelines were looked at"


@dataclass(frozen=True, slots=True)
class Besides:
    """What is tried beside samples and blocks."""

    layers: int = 0
    """Setups with blocks, the best ones in space, for which it is chosen what every layer uses the grid for."""
    stages: int = 0
    """Of pipelines, at most; below 2 there are none."""
    recompute: bool = False
    """Whether modules may run again in the backward pass, in the best setups that do not fit without."""


_NOTHING = Besides()


def search(
    oracle: Oracle,
    ranks: Sequence[int],
    *,
    goal: str = "time",
    besides: Besides = _NOTHING,
    data: DataSet | None = None,
    simulated: int = 12,
) -> Found:
    """Return the setups of numbers of ranks.

    Parameters
    ----------
    oracle
        Says what each takes.
    ranks
        Numbers of ranks.
    goal
        What is to be least.
    besides
        What is tried beside samples and blocks.
    data
        What is read, where it is known.
    simulated
        Setups, the best ones without reading, for which reading is simulated.

    Raises
    ------
    UsageError
        When the batch and the samples cannot be dealt out to any of these numbers, or no setup fits: then the memory of
        the one that needs least is told.
    """
    training = oracle.training
    given = list(setups(training.shape, training.batch, ranks))
    refused = list[str]()
    lines = Pipelines(oracle) if besides.stages > 1 else None
    found = [oracle.forecast(each) for each in given] if besides.recompute else oracle.forecasts(given)
    if lines is not None:
        found += _staged(lines, pipelined(training.shape, training.batch, ranks, besides.stages), refused)
    if not found:
        raise UsageError(
            "--ranks",
            found=f"{list(ranks)} for batches of {training.batch} samples of {training.shape} voxels",
            expected="ranks that divide into blocks of samples and groups of as many samples each",
            remedy="choose numbers that the batch and the extents share factors with",
        )
    ordered = ranked(found, goal)
    if besides.recompute:
        ordered = ranked([*ordered, *_again(oracle, ordered, goal)], goal)
    if not ordered[0].fits:
        least = min(ordered, key=lambda each: each.memory.use.total)
        least.memory.require(least.limit)
    if besides.layers:
        ordered = ranked([*ordered, *_layerwise(oracle, ordered, besides.layers, refused)], goal)
    if data is not None:
        shown = [oracle.with_reading(each, data) for each in ordered[:simulated]]
        ordered = [*ranked(shown, goal), *ordered[simulated:]]
    best, trace, others = _first(oracle, ordered, lines, refused)
    best = best if data is None else oracle.with_reading(best, data)
    alone = sum(each.setup.stages == 1 for each in found)
    return Found(oracle, goal, (best, *others), trace, len(given) - alone, tuple(refused))


def _first(
    oracle: Oracle, ordered: Sequence[Forecast], lines: Pipelines | None, refused: list[str]
) -> tuple[Forecast, StepTrace, Sequence[Forecast]]:
    """Return the first setup that can be as it was told, traced as the engine runs it; and those behind it."""
    for place, best in enumerate(ordered):
        others = ordered[place + 1 :]
        try:
            traced, trace = (
                exact(oracle, best.setup, best.layers, best.recompute)
                if lines is None or best.setup.stages == 1
                else lines.exact(best.setup, best.cuts)
            )
        except UsageError as error:
            if best.setup.stages == 1:
                raise
            refused.append(f"{best.setup.describe()} is left out: {error}")
            continue
        if best.fits and not traced.fits and others and others[0].fits:
            refused.append(f"{best.setup.describe()} is left out: as the engine runs it, it does not fit")
            continue
        return traced, trace, others
    raise UsageError(
        "--stages",
        found="pipelines, none of which can be run",
        expected="other setups, too",
        remedy="allow more --ranks",
    )


def _staged(lines: Pipelines, given: Iterable[Setup], refused: list[str]) -> Iterator[Forecast]:
    """Yield what pipelines take; of those that cannot be, what is in the way of the first."""
    for setup in given:
        try:
            yield lines.forecast(setup)
        except UsageError as error:
            if not any(each.startswith(_NOT_ALL) for each in refused):
                refused.append(f"{_NOT_ALL}: {error}")


def _layerwise(oracle: Oracle, ordered: Sequence[Forecast], most: int, refused: list[str]) -> Iterator[Forecast]:
    """Yield the best setups that cut samples, with the best use of the grid by each layer where that is not space."""
    cut = [each.setup for each in ordered if prod(each.setup.spatial) > 1]
    for setup in cut[:most]:
        try:
            layers = LayerChooser(oracle, setup).best().layers
        except UsageError as error:
            refused.append(f"Layers of {setup.describe()} cut space, none was chosen for: {error}")
            continue
        if layers:
            yield exact(oracle, setup, layers)[0]
