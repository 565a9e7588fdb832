"""Training with a cache: the same numbers, the storage read once, and figures that say so."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from tests.training.stops import train_on_ranks
from voxload.cli.main import run
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.cache import Cache
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.result import WEIGHTS, TrainingResult
from voxload.training.run import Run

TRAINED, HELD_OUT = 12, 4
"""Samples of the catalogue when a quarter is held out."""
EPOCHS = 2
DROPOUT = 0.3
"""Above 0: the cache must leave torch's random numbers alone."""


def _plan(catalog: Path, output: Path, **changes: Any) -> TrainingPlan:
    recipe = Optimisation(epochs=EPOCHS, batch_size=2, dropout=DROPOUT)
    return replace(TrainingPlan(str(catalog), str(output), validation=0.25, optimisation=recipe), **changes)


def _fetches(result: TrainingResult) -> Counter[str]:
    """Return how many blocks came from where, over all ranks."""
    found: Counter[str] = Counter()
    for rank in result.ranks:
        found.update({kind: traffic.fetches for kind, traffic in rank.sources.items()})
    return found


def _learnt(result: TrainingResult) -> list[tuple[float, float, tuple[float, ...]]]:
    """Return the numbers that must not depend on where blocks come from."""
    return [(epoch.training_loss, epoch.validation_loss, epoch.validation_mae) for epoch in result.epochs]


def _samples(path: Path) -> dict[tuple[str, str, str, str], float]:
    """Return what a scraper reads, by (name, rank, loader, source)."""
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        (one.name, one.labels["rank"], one.labels["loader"], one.labels.get("source", "")): one.value
        for family in families
        for one in family.samples
    }


def _by_command_line(
    catalog: Path, output: Path, prometheus: Path, capfd: pytest.CaptureFixture[str]
) -> TrainingResult:
    """Train with a cache on two ranks that the command starts."""
    words = ["--nproc", "2", "--epochs", str(EPOCHS), "--validation", "0.25", "--dropout", str(DROPOUT)]
    room = ["--memory", "16MiB", "--prometheus", str(prometheus)]
    assert run(["train", str(catalog), *words, *room, "--output", str(output), "--json"]) == 0
    return TrainingResult.from_json(capfd.readouterr().out)


@pytest.mark.long
@pytest.mark.parametrize("by", ["hand", "the command line"])
def test_two_ranks_with_a_cache_learn_the_same_and_read_once(
    by: str, catalog: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two groups share one reading of the storage; losses, errors and weights are equal bit for bit."""
    plain, _ = train_on_ranks(_plan(catalog, tmp_path / "plain"), 2)
    assert plain.policy is None
    assert plain.is_clairvoyant  # it reads the first batches of an epoch before that begins
    told_to = tmp_path / "voxload.prom"
    if by == "hand":
        plan = _plan(catalog, tmp_path / "cached", cache=Cache(memory="16MiB"), prometheus=str(told_to))
        cached, _ = train_on_ranks(plan, 2)
    else:
        cached = _by_command_line(catalog, tmp_path / "cached", told_to, capfd)
    assert _learnt(cached) == _learnt(plain)
    weights = [torch.load(tmp_path / name / WEIGHTS, weights_only=True) for name in ("plain", "cached")]
    assert all(torch.equal(values, weights[1][name]) for name, values in weights[0].items())
    fetches = _fetches(cached)
    assert fetches["storage"] == TRAINED
    assert fetches.total() == EPOCHS * TRAINED
    assert fetches["peer"] > 0
    assert (cached.policy, cached.is_clairvoyant) == ("clairvoyant", True)
    told = _samples(told_to)
    name = "voxload_loader_fetches_total"
    assert sum(told[name, rank, "training", "storage"] for rank in "01") == TRAINED
    assert sum(told[name, rank, "validation", "storage"] for rank in "01") == HELD_OUT
    assert {told["voxload_loader_samples_total", rank, "training", ""] for rank in "01"} == {EPOCHS * TRAINED / 2}


def _alone(plan: TrainingPlan) -> TrainingResult:
    """Train as the one rank there is, in this process, whose threads and files are watched."""
    with closing(Run(plan, ProcessGrid(spatial=(1, 1, 1), world_size=1, rank=0))) as alone:
        return alone.execute(lambda _: None)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("is_clairvoyant", [pytest.param(True, marks=pytest.mark.long), False])
def test_the_result_says_whether_later_orders_were_used(is_clairvoyant: bool, catalog: Path, tmp_path: Path) -> None:
    """Without a cache too: there the loader reads the first batches of the next epoch, unless it is told not to."""
    told = [] if is_clairvoyant else ["--no-clairvoyant"]
    words = ["--epochs", "1", "--validation", "0.25", "--output", str(tmp_path), "--json", *told]
    assert run(["train", str(catalog), *words]) == 0
    result = TrainingResult.from_json((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (result.policy, result.is_clairvoyant) == (None, is_clairvoyant)


@pytest.mark.usefixtures("one_thread")
def test_a_plan_without_clairvoyance_reaches_all_loaders(catalog: Path, tmp_path: Path) -> None:
    """Those of training and of held-out samples; a cache that is told otherwise is refused."""
    grid = ProcessGrid(spatial=(1, 1, 1), world_size=1, rank=0)
    with closing(Run(_plan(catalog, tmp_path, clairvoyant=False), grid)) as alone:
        assert not alone.data.loader.clairvoyant
        assert not alone.data.judge.loader.clairvoyant
    with pytest.raises(UsageError, match="clairvoyant: found False with a cache that uses orders beyond"):
        Run(_plan(catalog, tmp_path, clairvoyant=False, cache=Cache(memory="16MiB")), grid)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_a_disk_spares_the_next_run_the_storage(catalog: Path, tmp_path: Path) -> None:
    """The second run on a disk tier reads nothing and learns the same; orders beyond the epoch were not used."""
    cache = Cache(disk=tmp_path / "tier", disk_size="16MiB", clairvoyant=False)
    recipe = Optimisation(epochs=2, batch_size=4)
    plan = _plan(catalog, tmp_path, optimisation=recipe, cache=cache, clairvoyant=False)
    results = [_alone(plan) for _ in range(2)]
    assert _learnt(results[0]) == _learnt(results[1])
    for result, expected in zip(results, (TRAINED, 0), strict=True):
        assert _fetches(result) == {"storage": expected, "disk": 2 * TRAINED - expected, "memory": 0, "peer": 0}
        assert (result.policy, result.is_clairvoyant) == ("clairvoyant", False)
    assert sorted(path.name for path in (tmp_path / "tier").iterdir()) == ["training", "validation"]


@pytest.mark.usefixtures("one_thread")
def test_figures_that_cannot_be_written_do_not_end_a_run(catalog: Path, tmp_path: Path) -> None:
    """Monitoring that fails is a warning after each epoch."""
    recipe = Optimisation(epochs=1, batch_size=4)
    with pytest.warns(RuntimeWarning, match=r"figures for Prometheus .*gone/voxload\.prom: found No such file"):
        _alone(_plan(catalog, tmp_path, optimisation=recipe, prometheus=str(tmp_path / "gone" / "voxload.prom")))
