"""Larger samples: what a network learns from whole universes, and from the eighths that they are cut into.

python examples/cosmology/larger_samples.py --output larger-samples-report

Makes universes, and trains CosmoFlow on whole cubes, each split over two ranks, and on their eighths, each a sample
with the labels of its universe. Both kinds hold out the same universes, see every voxel once an epoch, and choose from
the same batches and step sizes. Prints the held-out errors over that of predicting the mean, and draws them by epoch.
The network is LBANN's, which has the same layers and weights for both sizes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import voxload
from voxload.catalog import Catalog, Entry
from voxload.convert import convert
from voxload.demo.universes import make_universes
from voxload.errors import UsageError
from voxload.models import CosmoFlow
from voxload.training.checkpoint import Checkpoint
from voxload.training.data import split_samples
from voxload.training.normalisation import TargetScale
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.result import TrainingResult
from voxload.training.worker import launch

SIZE = 64
"""Voxels along each axis; CosmoFlow takes the eighths, too, from 64 on."""
TARGETS = ("Omega_m", "sigma_8")
"""What is predicted: the other two hardly change a field of this size."""
HELD_OUT = 1 / 8
"""Share of the universes to judge by."""
PARTS = 8
"""Eighths of a universe."""
WHOLE, EIGHTHS = "whole", "eighths"
GRIDS = {WHOLE: (2, 1, 1), EIGHTHS: (1, 1, 1)}
"""Blocks along (d, h, w): two ranks share a cube, or have eighths of their own."""
PROCESSES = 2
ROWS = {
    "mean": "mean predictor",
    "part": "eighths, each for itself",
    "averaged": "eighths, averaged over a universe",
    WHOLE: "whole universes",
}
"""What is compared, and its name in the table."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tuned for each kind of samples."""

    batch: int
    """Samples of a step, over all ranks."""
    rate: float
    """Adam's step size at its highest."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.batch % PROCESSES:
            raise UsageError("batch", found=str(self.batch), expected=f"a multiple of {PROCESSES}, for as many ranks")

    def __str__(self) -> str:
        return f"batch {self.batch}, rate {self.rate:g}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed found."""

    results: Mapping[str, TrainingResult]
    """By `WHOLE` and `EIGHTHS`."""
    ratios: Mapping[str, Sequence[float]]
    """Held-out error over the mean predictor's by key of `ROWS`, one per target."""


class Data:
    """The universes, as they are and in eighths.

    Parameters
    ----------
    folder
        Where they are kept for the next time.
    count
        Universes, a multiple of 8, so that the same share of eighths is held out.

    Raises
    ------
    UsageError
        For other counts.
    """

    def __init__(self, folder: Path, *, count: int) -> None:
        if count < 2 * PARTS or count % PARTS:
            raise UsageError("universes", found=str(count), expected=f"a multiple of {PARTS}, {2 * PARTS} or more")
        raw = folder / f"raw-{count}"
        make_universes(raw, count=count, size=SIZE, seed=0)
        self.whole = convert(raw, folder / f"whole-{count}").catalog
        self._folder = folder / f"eighths-{count}"
        self._folder.mkdir(exist_ok=True)
        self._listed = Catalog.read(self.whole)
        self._parts = self._cut()

    def catalog(self, kind: str, *, seed: int) -> Path:
        """Return the catalogue of whole universes or of eighths; what a seed holds out is the same in both.

        A run draws what it holds out by the samples' names. So the names that it will draw are given to the eighths of
        those universes that it would hold out: all eighths of a universe are then on one side.
        """
        if kind == WHOLE:
            return self.whole
        universes = split_samples(self._listed.samples, fraction=HELD_OUT, seed=seed)
        names = split_samples([f"part-{n:06}" for n in range(self._count)], fraction=HELD_OUT, seed=seed)
        entries = [
            entry
            for side in ("validation", "training")
            for entry in self._named(getattr(universes, side), getattr(names, side))
        ]
        path = self._folder / f"catalog-{seed}.parquet"
        Catalog.from_entries(entries, self._folder).write(path)
        return path

    @property
    def _count(self) -> int:
        return len(self._listed.samples) * PARTS

    def _cut(self) -> list[list[Path]]:
        """Write the eighths of each universe that are not there yet; they are what the ranks of a grid would read."""
        paths = [[self._folder / f"{name}-{part}.npy" for part in range(PARTS)] for name in self._listed.samples]
        for part in range(PARTS):
            grid = voxload.ProcessGrid((2, 2, 2), PARTS, part)
            data = voxload.VolumeDataset(self._listed, grid=grid)
            for index, row in enumerate(paths):
                if not row[part].exists():
                    np.save(row[part], data[index][0].numpy())
            data.close()
        return paths

    def _named(self, universes: Sequence[str], names: Sequence[str]) -> list[Entry]:
        """Return rows for the eighths of some universes, in order, under as many names."""
        paths = dict(zip(self._listed.samples, self._parts, strict=True))
        places = [(universe, path) for universe in universes for path in paths[universe]]
        dataset, shape = self._listed.datasets[0], (4, *(SIZE // 2,) * 3)
        return [
            Entry(
                name,
                path.name,
                "",
                shape,
                "<i2",
                "CDHW",
                path.stat().st_size,
                self._listed.entry(universe, dataset).targets,
            )
            for name, (universe, path) in zip(names, places, strict=True)
        ]


class Comparison:
    """Trains on both kinds of samples with equal recipes.

    Parameters
    ----------
    data
        The universes.
    output
        Folder for weights and results.
    epochs
        Passes over the universes.
    variant
        Of CosmoFlow.
    """

    def __init__(self, data: Data, output: Path, *, epochs: int, variant: str) -> None:
        self._data, self._output, self._epochs, self._variant = data, output, epochs, variant

    def train(self, kind: str, setting: Setting, *, seed: int) -> TrainingResult:
        """Train on local processes, and say how it went."""
        start = perf_counter()
        result = launch(self._plan(kind, setting, seed=seed), processes=PROCESSES, on_epoch=lambda _: None)
        told = ", ".join(f"{name} {ratio:.3f}" for name, ratio in zip(TARGETS, result.mae_ratio, strict=True))
        print(f"{kind}, seed {seed}, {setting}: {told} ({perf_counter() - start:.0f} s)", flush=True)
        return result

    def search(self, kind: str, settings: Sequence[Setting], *, seed: int) -> Setting:
        """Return the setting with the least held-out loss of this seed."""
        if len(settings) == 1:
            return settings[0]
        losses = {each: self.train(kind, each, seed=seed).epochs[-1].validation_loss for each in settings}
        return min(losses, key=losses.__getitem__)

    def outcome(self, settings: Mapping[str, Setting], *, seed: int) -> Outcome:
        """Train on both kinds, and judge both by the same universes."""
        results = {kind: self.train(kind, setting, seed=seed) for kind, setting in settings.items()}
        averaged = self._averaged(settings[EIGHTHS], seed)
        of_mean = results[WHOLE].mean_predictor_mae
        ratios = {
            "mean": (1.0,) * len(TARGETS),
            "part": results[EIGHTHS].mae_ratio,
            "averaged": tuple(error / mean for error, mean in zip(averaged, of_mean, strict=True)),
            WHOLE: results[WHOLE].mae_ratio,
        }
        return Outcome(results, ratios)

    def _plan(self, kind: str, setting: Setting, *, seed: int) -> TrainingPlan:
        groups = PROCESSES // prod(GRIDS[kind])
        recipe = Optimisation(
            self._epochs, batch_size=setting.batch // groups, learning_rate=setting.rate, dropout=0.0, seed=seed
        )
        return TrainingPlan(
            os.fspath(self._data.catalog(kind, seed=seed)),
            os.fspath(self._output / f"{kind}-{seed}-{setting.batch}-{setting.rate:g}"),
            variant=self._variant,
            targets=TARGETS,
            spatial=GRIDS[kind],
            validation=HELD_OUT,
            optimisation=recipe,
        )

    def _averaged(self, setting: Setting, seed: int) -> list[float]:
        """Return each target's error of the mean over a held-out universe's eighths."""
        plan = self._plan(EIGHTHS, setting, seed=seed)
        trained = Checkpoint.read(Path(plan.output))
        listed = Catalog.read(plan.catalog)
        split = split_samples(listed.samples, fraction=HELD_OUT, seed=seed)
        training, held_out = (listed.select(names) for names in (split.training, split.validation))
        network = CosmoFlow(SIZE // 2, 4, len(TARGETS), variant=self._variant, dropout=0.0)  # type: ignore[arg-type] # one of the variants
        network.load_state_dict(trained.learner["network"])
        with torch.no_grad():
            pairs = [
                (network(trained.moments.transform(volume[None])).double(), truth) for volume, truth in _items(held_out)
            ]
        found, truth = torch.cat([found for found, _ in pairs]), torch.stack([truth for _, truth in pairs])
        original = TargetScale.of(_targets(training)).original(found)
        # The eighths of a universe have names that follow each other.
        errors = (original - truth).reshape(-1, PARTS, len(TARGETS)).mean(1).abs()
        means: list[float] = errors.mean(0).tolist()
        return means


def _items(catalog: Catalog) -> list[tuple[Tensor, Tensor]]:
    """Return the volume and the targets of each sample."""
    data = voxload.VolumeDataset(catalog, targets=TARGETS)
    items = [(volume, truth) for volume, truth in (data[index] for index in range(len(data)))]
    data.close()
    return items


def _targets(catalog: Catalog) -> Tensor:
    """Return the targets of all samples, ``(N, T)``."""
    return torch.tensor([catalog.table.column(name).to_pylist() for name in TARGETS], dtype=torch.float32).T


def summary(outcomes: Sequence[Outcome]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and standard deviation over the seeds, by row and target."""
    return {
        key: {name: _spread([each.ratios[key][place] for each in outcomes]) for place, name in enumerate(TARGETS)}
        for key in ROWS
    }


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def table(found: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Return the comparison as text."""
    lines = [f"{'held-out error over the mean predictor':<40}" + "".join(f"{name:>18}" for name in TARGETS)]
    for key, label in ROWS.items():
        figures = (f"{mean:.3f} +- {spread:.3f}" for mean, spread in found[key].values())
        lines.append(f"{label:<40}" + "".join(f"{text:>18}" for text in figures))
    return "\n".join(lines)


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw the held-out errors by epoch, one line a seed, and that of averaged eighths at the end."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    for place, (panel, name) in enumerate(zip(figure.subplots(1, len(TARGETS)), TARGETS, strict=True)):
        for kind, colour in ((EIGHTHS, "#e07b20"), (WHOLE, "#1f5fa8")):
            for number, each in enumerate(outcomes):
                result = each.results[kind]
                ratios = [epoch.validation_mae[place] / result.mean_predictor_mae[place] for epoch in result.epochs]
                label = {EIGHTHS: ROWS["part"], WHOLE: ROWS[WHOLE]}[kind] if number == 0 else None
                panel.plot(range(1, len(ratios) + 1), ratios, "o-", color=colour, markersize=3, label=label)
        ends = [each.ratios["averaged"][place] for each in outcomes]
        panel.plot([len(ratios)] * len(ends), ends, "*", color="#e07b20", markersize=11, label=ROWS["averaged"])
        panel.axhline(1, color="#8a8f98", linestyle="--", linewidth=1, label=ROWS["mean"])
        panel.set(title=name, xlabel="epoch", ylabel="held-out error over the mean predictor's", ylim=(0, None))
        panel.grid(alpha=0.25)
    figure.axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Make the data, train on both kinds of samples with each seed, compare and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--universes", type=int, default=96, help="a multiple of 8; an eighth of them is held out")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--seeds", type=int, default=2, help="runs, each with its own weights and held-out universes")
    parser.add_argument("--batches", type=int, nargs="+", default=[4], help="samples of a step, even numbers")
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4], help="step sizes")
    parser.add_argument("--variant", default="lbann", choices=("lbann", "mlperf"), help="of CosmoFlow")
    parser.add_argument("--folder", type=Path, default=Path("larger-samples-data"))
    parser.add_argument("--output", type=Path, default=Path("larger-samples-report"))
    parser.add_argument("--json", action="store_true", dest="as_json", help="also write figures.json")
    arguments = parser.parse_args()
    settings = [Setting(batch, rate) for batch, rate in product(arguments.batches, arguments.rates)]
    data = Data(arguments.folder, count=arguments.universes)
    comparison = Comparison(data, arguments.output, epochs=arguments.epochs, variant=arguments.variant)
    # Both kinds choose from the same settings, by a seed that is not among those compared.
    chosen = {kind: comparison.search(kind, settings, seed=arguments.seeds) for kind in GRIDS}
    outcomes = [comparison.outcome(chosen, seed=seed) for seed in range(arguments.seeds)]
    found = summary(outcomes)
    print(table(found))
    draw(outcomes, arguments.output / "larger-samples.png")
    if arguments.as_json:
        figures = {"universes": arguments.universes, "epochs": arguments.epochs, "error": found}
        figures["settings"] = {kind: asdict(setting) for kind, setting in chosen.items()}
        by_seed = [dict(each.ratios) for each in outcomes]
        (arguments.output / "figures.json").write_text(json.dumps(figures | {"seeds": by_seed}, indent=1))
    print(f"Weights, results and the picture are in {arguments.output}/.")


if __name__ == "__main__":
    main()
