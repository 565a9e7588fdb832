"""Training on real processes: equal to one process, learning what can be learnt, failing in one line."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.launches import fork_launches
from tests.training.stops import train_on_ranks
from voxload.catalog.table import Catalog
from voxload.errors import DataError, UsageError
from voxload.models import CosmoFlow
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.result import WEIGHTS, TrainingResult
from voxload.training.worker import launch


def _plan(catalog: Path, output: Path, **changes: Any) -> TrainingPlan:
    recipe = Optimisation(epochs=2, batch_size=2, learning_rate=2e-4, dropout=0.0)
    return replace(TrainingPlan(str(catalog), str(output), validation=0.25, optimisation=recipe), **changes)


@pytest.mark.long
def test_blocks_train_as_one_process(catalog: Path, tmp_path: Path) -> None:
    """The same plan gives the same losses, errors and weights on one rank and on a sample split over two."""
    one, told = train_on_ranks(_plan(catalog, tmp_path / "one"), 1)
    two, _ = train_on_ranks(_plan(catalog, tmp_path / "two", spatial=(1, 2, 1)), 2)
    assert [event["number"] for event in told if event["event"] == "epoch"] == [1, 2]
    assert (one.training_samples, one.validation_samples) == (12, 4)
    for mine, other in zip(one.epochs, two.epochs, strict=True):
        # float32 sums in another order; Adam divides by small second moments and so enlarges what differs.
        assert mine.training_loss == pytest.approx(other.training_loss, rel=1e-3)
        assert mine.validation_mae == pytest.approx(other.validation_mae, rel=1e-2)
    weights = [torch.load(tmp_path / name / WEIGHTS, weights_only=True) for name in ("one", "two")]
    CosmoFlow(32, channels=2, targets=2).load_state_dict(weights[1])
    for name, values in weights[0].items():
        assert torch.allclose(values, weights[1][name], atol=2e-3), name
    _check_bytes(one, two)


def _check_bytes(one: TrainingResult, two: TrainingResult) -> None:
    """Two ranks together read what one rank reads, each its half, none a chunk that it does not need."""
    assert [rank.coords for rank in two.ranks] == [(0, 0, 0), (0, 1, 0)]
    assert sum(rank.bytes_needed for rank in two.ranks) == one.ranks[0].bytes_needed == 2 * 12 * 2 * 32**3 * 2
    assert {rank.decode_amplification for rank in (*one.ranks, *two.ranks)} == {1.0}


def test_what_a_rank_finds_wrong_comes_out_as_one_error(
    catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grids that do not fit are refused before anything starts; broken data are named by the rank that met them."""
    with pytest.raises(UsageError, match=r"world size 3 with spatial \(2, 1, 1\)"):
        launch(_plan(catalog, tmp_path, spatial=(2, 1, 1)), processes=3, on_epoch=lambda _: None)
    fork_launches(monkeypatch)
    shards = sorted(path for path in catalog.parent.rglob("c/*/*/*/*") if path.is_file())
    broken = tmp_path / "broken"
    listed = Catalog.read(catalog)
    shutil.copytree(catalog.parent, broken)
    (broken / shards[0].relative_to(catalog.parent)).unlink()
    with pytest.raises(DataError, match=rf"{listed.samples[0]}\.zarr.*no chunk full/c/0/0/0/0"):
        launch(_plan(broken / catalog.name, tmp_path), processes=1, on_epoch=lambda _: None)
