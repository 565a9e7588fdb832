"""Plans and results travel between processes unchanged; impossible ones are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.cache.peer.tls import Tls
from voxload.errors import DataError, UsageError
from voxload.loader.cache import Cache
from voxload.prefetch.meter import Traffic
from voxload.training.data import split_samples
from voxload.training.learner import WARM_UP_STEPS, rate_factor
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.result import DiceBaseline, Epoch, RankReport, TrainingResult
from voxload.training.resume import GlobalBatch, check_same_samples, small_differences


def test_a_plan_survives_its_json() -> None:
    """What the ranks read is what the launcher wrote."""
    plan = TrainingPlan("c.parquet", "out", targets=("a", "b"), spatial=(2, 1, 1), optimisation=Optimisation(seed=7))
    assert TrainingPlan.from_json(plan.to_json()) == plan
    tls = Tls(Path("certificate.pem"), Path("key.pem"), Path("roots.pem"), "node")
    for cache in (
        Cache(memory="8GiB", disk="tier", disk_size=10**9, policy="lru", peers="node", clairvoyant=False),
        Cache(peers="tcp", interface="ib0", tls=tls, codec="bitshuffle-lz4"),
    ):
        cached = TrainingPlan("c.parquet", "out", cache=cache, prometheus="voxload.prom")
        assert TrainingPlan.from_json(cached.to_json()) == cached
    labels = TrainingPlan("c.parquet", "out", model="unet3d", labels="y", classes=3, widths=(8, 16), resume=True)
    assert TrainingPlan.from_json(labels.to_json()) == labels
    paths = TrainingPlan("c.parquet", "out", cache=Cache(disk=Path("tier"), disk_size=1))
    assert TrainingPlan.from_json(paths.to_json()).cache == Cache(disk="tier", disk_size=1)
    with pytest.raises(DataError, match="training plan"):
        TrainingPlan.from_json('{"catalog": 1}')


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"dropout": 1.0}])
def test_impossible_optimisations_are_refused(wrong: dict[str, float]) -> None:
    """Numbers that cannot train anything are refused where they are written down."""
    with pytest.raises(UsageError, match="training: found"):
        Optimisation(**wrong)  # type: ignore[arg-type] # one number each
    with pytest.raises(UsageError, match="dtype: found 'int8', expected float32 or float64"):
        Optimisation(dtype="int8")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such network": ({"model": "resnet"}, "model: found 'resnet', expected 'cosmoflow' or 'unet3d'"),
    "labels without a use": ({"labels": "y"}, "cosmoflow: found labels 'y'"),
    "widths without a use": ({"widths": (8, 16)}, "cosmoflow: found .*widths"),
    "no labels": ({"model": "unet3d", "classes": 2}, "unet3d: found labels '' of 2 classes.*--labels"),
    "one class": ({"model": "unet3d", "labels": "y", "classes": 1}, "2 classes or more"),
    "targets": ({"model": "unet3d", "labels": "y", "classes": 2, "targets": ("a",)}, "expected labels, and no targets"),
    "steps backwards": ({"checkpoint_every": -1}, "checkpoints: found every -1 steps"),
}


@pytest.mark.parametrize("case", WRONG)
def test_impossible_plans_are_refused(case: str) -> None:
    """Settings that contradict each other are refused before anything is read."""
    settings, expected = WRONG[case]
    with pytest.raises(UsageError, match=expected):
        TrainingPlan("c.parquet", "out", **settings)


def test_a_step_may_be_dealt_out_anew() -> None:
    """As many samples a step are needed; what then still differs by more than rounding is said."""
    halves, quarters, thirds = GlobalBatch(2, 6), GlobalBatch(4, 3), GlobalBatch(3, 4)
    check_same_samples(halves, quarters)
    with pytest.raises(UsageError, match=r"found 4 sample groups of 2: 8 samples, expected 12"):
        check_same_samples(halves, GlobalBatch(4, 2))
    assert small_differences(halves, quarters, samples=24, is_normalised=False) == ()
    (repeated,) = small_differences(halves, thirds, samples=14, is_normalised=False)
    assert repeated == "1 of 14 samples come twice in an epoch of 3 groups, not 0"
    (normalised,) = small_differences(halves, quarters, samples=24, is_normalised=True)
    assert normalised == "normalisation is over the 3 samples of a group, not 6"


def test_a_result_survives_its_json() -> None:
    """The report is drawn from what rank 0 wrote."""
    sources = {"storage": Traffic(3, 1, 30, 0.5, 0.25, 0.5), "memory": Traffic()}
    rank = RankReport(0, 0, (0, 0, 0), 10, 5, 0.5, 1.0, 0.1, 0.9, ((0.0, 0.1, 0.9),), sources)
    epochs = (Epoch(1.0, 0.9, (0.4, 0.5), 2.0), Epoch(0.5, 0.6, (0.1, 0.5), 2.0))
    result = TrainingResult(
        ("a", "b"), (8, 8, 8), (1, 1, 1), 14, 2, (0.4, 0.5), epochs, (rank,), "lru", is_clairvoyant=True
    )
    assert result.mae_ratio == (0.25, 1.0)
    assert TrainingResult.from_json(result.to_json()) == result
    assert [one["bandwidth"] for one in json.loads(result.to_json())["ranks"][0]["sources"].values()] == [60.0, 0.0]
    dice = DiceBaseline((1, 2), (0.1, 0.2), (0.2, 0.3))
    labelled = replace(result, targets=(), mean_predictor_mae=(), dice_baseline=dice)
    labelled = replace(labelled, epochs=(Epoch(1.0, 0.9, (), 2.0, (0.5, 0.7)),))
    assert labelled.epochs[0].mean_dice == pytest.approx(0.6)
    assert TrainingResult.from_json(labelled.to_json()) == labelled
    with pytest.raises(DataError, match="training result"):
        TrainingResult.from_json("[]")


@given(count=st.integers(2, 200), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 9), order=st.randoms())
def test_a_split_parts_the_samples(count: int, fraction: float, seed: int, order: object) -> None:
    """Each sample is in one part; the parts do not depend on the order in which the ids are listed."""
    ids = [f"u{index:03}" for index in range(count)]
    held_out = round(count * fraction)
    if not 0 < held_out < count:
        with pytest.raises(UsageError, match="validation split"):
            split_samples(ids, fraction=fraction, seed=seed)
        return
    split = split_samples(ids, fraction=fraction, seed=seed)
    assert sorted(split.training + split.validation) == ids
    assert len(split.validation) == held_out
    order.shuffle(ids)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert split_samples(ids, fraction=fraction, seed=seed) == split


@given(steps=st.integers(1, 5000))
def test_the_rate_rises_and_falls(steps: int) -> None:
    """The rate starts small, is never above its full size, and only falls once it is warm."""
    factors = [rate_factor(step, steps) for step in range(steps)]
    assert 0 < factors[0] <= 1 / WARM_UP_STEPS
    assert all(0 < factor <= 1 for factor in factors)
    warm = factors[WARM_UP_STEPS:]
    assert warm == sorted(warm, reverse=True)
