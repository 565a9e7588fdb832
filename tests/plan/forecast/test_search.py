"""Setups in order, and what is said of the best."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import voxload
from voxload.catalog.table import Catalog, Entry
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.plan import load
from voxload.plan.forecast.forecast import Forecast, Oracle, pareto, ranked
from voxload.plan.forecast.reading import DataSet, reading
from voxload.plan.forecast.search import Found, search
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training, make_network
from voxload.plan.platform import files

SAMPLE = (4, 32, 32, 32)
TRAINING = Training("cosmoflow", SAMPLE, 8)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """Return what knows CosmoFlow on Lassen."""
    return Oracle(TRAINING, files.load("lassen"))


@pytest.fixture(scope="module")
def found(oracle: Oracle) -> Found:
    """Return its setups on up to eight ranks."""
    return search(oracle, [1, 2, 4, 8])


def test_goals_put_setups_in_order(found: Found) -> None:
    """By time, cost, ranks or memory; what does not fit comes last."""
    several = list(found.setups)
    values: dict[str, Callable[[Forecast], float]] = {
        "time": lambda each: each.step,
        "cost": lambda each: each.cost,
        "ranks": lambda each: each.setup.ranks,
        "memory": lambda each: each.memory.use.total,
    }
    for goal, value in values.items():
        ordered = ranked(several, goal)
        assert value(ordered[0]) == min(map(value, several))
    most = max(several, key=lambda each: each.memory.use.total)
    small = [replace(each, limit=most.memory.use.total - 1) for each in several]
    assert [each.fits for each in ranked(small)].count(False) >= 1
    assert not ranked(small)[-1].fits
    with pytest.raises(UsageError, match="--goal"):
        ranked(several, "speed")


def test_no_other_is_better_in_all(found: Found) -> None:
    """Of those that are kept; and each that is not has one that is."""
    kept = pareto(found.setups)

    def facts(each: Forecast) -> tuple[float, ...]:
        return each.setup.ranks, each.step, each.memory.use.total

    for each in found.setups:
        beaten = [one for one in kept if all(a <= b for a, b in zip(facts(one), facts(each), strict=True))]
        assert beaten
        assert each not in kept or all(facts(one) == facts(each) for one in beaten)


def test_the_best_is_what_the_engine_would_run(found: Found) -> None:
    """Its layers add up to its step, but for the update and gradients; its plan has the same figures."""
    time = found.best.time
    layers = found.layers()
    assert sum(each.forward for each in layers) == pytest.approx(time.forward)
    assert sum(each.seconds for each in layers) == pytest.approx(time.forward + time.backward + time.halos + time.sums)
    assert {each.path for each in found.layers("features.0")} >= {"features.0.0", "features.0.2"}
    with pytest.raises(UsageError, match="features"):
        found.layers("nothing")


def test_the_plan_is_read_again(found: Found, tmp_path: Path) -> None:
    """As it was written, grid and all."""
    plan = found.plan("lassen")
    plan.write(tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan
    assert plan.staging == 3 * 4 * int(np.prod(SAMPLE)) * plan.samples // int(np.prod(plan.spatial))
    assert plan.ranks == found.best.setup.ranks
    assert plan.grid(plan.ranks - 1).spatial == found.best.setup.spatial
    assert plan.predicted["step_seconds"] == pytest.approx(found.best.step)


def test_what_fits_nowhere_says_what_is_largest(oracle: Oracle) -> None:
    """Of the setup that needs least."""
    small = Oracle(TRAINING, oracle.platform, limit=2**20)
    with pytest.raises(UsageError, match=r"found .* MiB: .*; the largest tensor is"):
        search(small, [1, 8])


def test_numbers_that_nothing_divides_are_refused(oracle: Oracle) -> None:
    """Seven ranks have no groups of as many of eight samples, and no blocks of cubes of 32... but along one axis."""
    with pytest.raises(UsageError, match="--ranks"):
        search(oracle, [64 * 64 * 64 * 3])


@pytest.mark.parametrize(
    ("name", "message"),
    [("resnet", "module:callable"), ("voxload.models:Nothing", "Nothing"), ("os:sep", "str"), ("os:getcwd", "str")],
)
def test_names_of_no_network_are_refused(name: str, message: str) -> None:
    """With what would be one."""
    with pytest.raises(UsageError, match=message):
        make_network(name, SAMPLE)


def test_its_staging_is_what_a_loader_takes(found: Found, tmp_path: Path) -> None:
    """Enough for every batch to come."""
    plan = found.plan("lassen")
    data = _files(tmp_path, chunks=None)
    grid = ProcessGrid(plan.spatial, int(np.prod(plan.spatial)), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one rank of a group reads by itself
        loader = voxload.DataLoader(
            voxload.VolumeDataset(data, grid=grid), batch_size=plan.samples, staging=plan.staging
        )
        assert len(list(loader)) == -(-6 // plan.samples)


def _files(folder: Path, *, chunks: tuple[int, ...] | None) -> Path:
    rng = np.random.default_rng(0)
    entries = []
    for number in range(6):
        path = folder / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rng.normal(size=SAMPLE).astype("f4"), chunks=chunks)
        entries.append(
            Entry(
                sample=str(number),
                path=path.name,
                dataset="x",
                shape=SAMPLE,
                axes="CDHW",
                dtype="<f4",
                stored_bytes=path.stat().st_size,
            )
        )
    Catalog.from_entries(entries, folder).write(folder / "catalog.parquet")
    return folder / "catalog.parquet"


def _data(folder: Path, *, chunks: tuple[int, ...] | None) -> DataSet:
    return DataSet.of(Catalog.read(_files(folder, chunks=chunks)))


def test_reading_is_what_readers_say(tmp_path: Path, oracle: Oracle) -> None:
    """Blocks that chunks divide read what they need; those that cut chunks read each as often as it is cut."""
    nbytes = int(np.prod(SAMPLE)) * 4
    data = _data(tmp_path, chunks=(4, 16, 32, 32))
    halves = reading(data, Setup((2, 1, 1), 2, 1), oracle.platform.storage, 0.1)
    assert halves.stored == halves.decoded == nbytes // 2
    assert halves.amplification == pytest.approx(1.0)
    assert halves.first_epoch == 6 * nbytes
    assert halves.later_epochs == 0  # all of it fits into memory
    assert halves.stall is not None
    assert halves.binds == "nothing"
    across = reading(data, Setup((1, 2, 1), 2, 1), oracle.platform.storage, 0.1)
    assert across.amplification == pytest.approx(2.0)
    assert reading(data, Setup((1, 2, 1), 2, 1), None, 0.1).stall is None


def test_a_step_that_waits_is_longer(tmp_path: Path, oracle: Oracle) -> None:
    """By what the simulator says; samples of another shape are refused."""
    data = _data(tmp_path, chunks=None)
    forecast = oracle.forecast(Setup((1, 1, 1), 2, 4))
    with_data = oracle.with_reading(forecast, data)
    assert with_data.reading is not None
    assert with_data.step == pytest.approx(forecast.time.total + (with_data.reading.stall or 0.0))
    assert with_data.step > forecast.step
    assert with_data.epoch == pytest.approx(with_data.step)  # six samples are less than a step of two groups of four
    assert forecast.epoch is None
    assert replace(forecast, watts=100.0).joules == pytest.approx(forecast.step * 2 * 100)
    other = Oracle(Training("cosmoflow", (4, 64, 64, 64), 8), oracle.platform)
    with pytest.raises(UsageError, match="--sample"):
        other.with_reading(forecast, data)
