"""What layers had best use a grid for: beside every plan there is, each traced as the engine runs it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from torch import Tensor, nn

from tests.support.examples import IS_THOROUGH
from voxload.engine.ways.network import IN_SPACE
from voxload.errors import UsageError
from voxload.plan import load
from voxload.plan.forecast.exact import exact
from voxload.plan.forecast.forecast import Forecast, Oracle
from voxload.plan.forecast.layerwise import LayerChooser, candidates
from voxload.plan.forecast.search import Besides, search
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform import files
from voxload.plan.platform.platform import Platform

HERE = "tests.plan.forecast.test_layerwise"


class Joined(nn.Module):
    """Two branches that meet twice, a layer that is used twice, and a dense end: all that choices are about."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.skip = nn.Conv3d(4, 8, 3, padding=1), nn.Conv3d(8, 8, 1)
        self.down, self.norm = nn.Conv3d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose3d(16, 8, 2, 2)
        self.last = nn.Conv3d(16, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 4, D, H, W) for the same."""
        x = self.first(x).relu_()
        y = self.skip(x) + self.skip(x * 2)
        low = self.norm(self.down(x)).relu()
        voxels: Tensor = self.last(torch.cat([self.up(low), y], 1))
        return voxels


def joined() -> nn.Module:
    """Return a network of six layers."""
    return Joined()


def regressor() -> nn.Module:
    """Return a network that ends with numbers."""
    return nn.Sequential(
        nn.Conv3d(4, 8, 3, padding=1),
        nn.MaxPool3d(2),
        nn.Conv3d(8, 16, 3, padding=1),
        nn.Flatten(),
        nn.Linear(16 * 8**3, 6),
    )


def _slow(latency: float = 1e-5) -> Platform:
    """Return a machine on which both computing and messages count."""
    lassen = files.load("lassen")
    device = replace(lassen.device, flops=MappingProxyType({"float32": 2e11}), launch=1e-6)
    return replace(lassen, device=device, within=replace(lassen.within, latency=latency, seconds_per_byte=2e-9))


def _oracle(name: str, sample: tuple[int, int, int, int], latency: float = 1e-5) -> Oracle:
    return Oracle(Training(f"{HERE}:{name}", sample, 2), _slow(latency))


def _counted(each: Forecast) -> float:
    """Return the seconds of a step that depend on what layers use the grid for."""
    return each.time.total - each.time.update - each.time.gradients


@pytest.mark.parametrize(
    ("name", "latency"), [pytest.param("joined", 2e-4, marks=pytest.mark.long), ("regressor", 1e-5)]
)
def test_the_choice_is_the_best_of_all_plans(name: str, latency: float) -> None:
    """Of all uses by all layers, each traced as the engine runs it; and what it takes is what was said."""
    oracle, setup = _oracle(name, (4, 16, 16, 16), latency), Setup((2, 1, 1), 1, 2)
    words = ("space", "channel", "whole", "filter")[: 4 if name == "regressor" and IS_THOROUGH else 3]
    chooser = LayerChooser(oracle, setup, [each for each in candidates((2, 1, 1)) if each[0].value in words])
    chosen = chooser.best()
    paths = list(dict.fromkeys(each.call.path for each in chooser.calls if each.is_layer and each.call is not None))
    times = {}
    for uses in product(words, repeat=len(paths)):
        plan = {path: f"{use},space,space" for path, use in zip(paths, uses, strict=True) if use != "space"}
        times[uses] = _counted(exact(oracle, setup, plan)[0])
    found = tuple(chosen.layers.get(path, "space").partition(",")[0] for path in paths)
    assert len(times) == len(words) ** len(paths)
    in_space = ("space",) * len(paths)
    assert times[found] == pytest.approx(min(times.values()), rel=1e-3)
    # What the loss takes is the same in all of them, and is no part of the choice.
    loss = times[in_space] - chooser.uniform(IN_SPACE).seconds
    assert chosen.seconds + loss == pytest.approx(times[found], rel=0.01)
    assert min(times.values()) < 0.99 * times[in_space]


@pytest.mark.parametrize("spatial", [(2, 2, 1), (4, 1, 1)])
def test_what_all_layers_share_is_priced_as_it_runs(spatial: tuple[int, int, int]) -> None:
    """Every candidate for all layers at once, on a grid of two axes too; the choice is as good as any."""
    oracle, setup = _oracle("joined", (4, 16, 16, 16)), Setup(spatial, 1, 2)
    chooser = LayerChooser(oracle, setup)
    best, in_space = chooser.best(), chooser.uniform(IN_SPACE)
    loss = _counted(exact(oracle, setup)[0]) - in_space.seconds  # the same whatever layers use the grid for
    assert 0 < loss < 0.05 * in_space.seconds
    for shared in [best, *map(chooser.uniform, candidates(spatial))]:
        assert best.seconds <= shared.seconds * (1 + 1e-9)
        assert _counted(exact(oracle, setup, shared.layers)[0]) == pytest.approx(shared.seconds + loss, rel=0.01)


def test_plans_say_what_layers_use(tmp_path: Path) -> None:
    """Where that is better than space; and the plan that is written has it."""
    oracle = _oracle("regressor", (4, 16, 16, 16))
    plain, found = (search(oracle, [4], besides=Besides(layers=layers)) for layers in (0, 2))
    assert not plain.best.layers
    assert any(each.layers for each in found.setups)
    assert found.best.step <= plain.best.step
    path = tmp_path / "plan.json"
    found.plan("slow").write(path)
    assert load(path).layers == dict(found.best.layers)


def test_networks_with_too_many_ways_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are planned all the same, and the answer tells which ones were not."""
    monkeypatch.setattr("voxload.engine.ways.calls.MOST", 2)
    oracle = _oracle("joined", (4, 16, 16, 16))
    with pytest.raises(UsageError, match="ways to carry it out"):
        LayerChooser(oracle, Setup((2, 2, 1), 1, 2))
    found = search(oracle, [4], besides=Besides(layers=1))
    assert any("none was chosen for" in each for each in found.notes())
