"""Predictions: on any grid those of the plain network on the whole volume, each sample once, in files of their own.

``python -m tests.inference.test_run PLANS`` under torchrun is one of the tests' ranks: it carries out one plan
after the other, as JSON lines.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
import zarr
from numpy.typing import NDArray

from tests.support.examples import IS_THOROUGH
from tests.support.ranks import printed_by_ranks
from tests.training.stops import REGRESSION, SEGMENTATION, regression, segmentation, single_threaded, train
from voxload.catalog.table import Catalog, Entry
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.geometry import Box
from voxload.grid import ProcessGrid
from voxload.inference.data import deal
from voxload.inference.plan import NIFTI, ZARR, InferencePlan
from voxload.inference.result import InferenceResult
from voxload.inference.store import Chunking
from voxload.inference.worker import Inference
from voxload.loader.dataloader import DataLoader
from voxload.models import CosmoFlow, UNet3D
from voxload.training.checkpoint import CHECKPOINT, Checkpoint
from voxload.training.data import split_samples

nib: Any = nibabel
"""Not all of it is annotated."""
ROOT = Path(__file__).parents[2]
RANKS = 4
SPACING, AFFINE = (3.0, 0.5, 0.75), (0.0, 0, 0.75, -7, 0, 0.5, 0, 33, -3.0, 0, 0, 0.5, 0, 0, 0, 1)
"""Of all samples."""
GRIDS = {"four": (2, 2, 1)} | ({"halves": (2, 1, 1)} if IS_THOROUGH else {})
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Runs:
    """One network's checkpoint, and what it predicts on one process and on two grids of four."""

    plan: InferencePlan
    """On one process; outputs of the others are beside its own, by the names of `GRIDS`."""
    figures: dict[str, InferenceResult]
    """By name of the output folder."""

    def folder(self, name: str) -> Path:
        """Return the output folder of one of the runs."""
        return Path(self.plan.output).with_name(name)


def _hush(event: dict[str, Any]) -> None:
    """Hear nothing."""


def _infer(plan: InferencePlan, grid: ProcessGrid | None = None) -> InferenceResult:
    with closing(Inference(plan, grid or ProcessGrid())) as run:
        return run.execute(_hush)


def _part(catalog: Path, folder: Path, *, samples: int, without: str = "", targets: int = 0) -> str:
    """Write a catalogue of the first samples, with fewer targets and without a dataset of the first one."""
    whole = Catalog.read(catalog)
    entries = []
    for sample, dataset in whole.keys:
        if sample in whole.samples[:samples] and (sample, dataset) != (whole.samples[0], without):
            entry = whole.entry(sample, dataset)
            known = dict(list(entry.targets.items())[:targets])
            path = str(catalog.parent / entry.path)
            entries.append(replace(entry, path=path, targets=known, spacing=SPACING, affine=AFFINE))
    Catalog.from_entries(entries, folder, allow_outside=True).write(folder / "part.parquet")
    return str(folder / "part.parquet")


@pytest.fixture(scope="module")
def numbers(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> InferencePlan:
    """Train CosmoFlow for an epoch; return the plan of one process for seven samples with one of two targets."""
    folder = tmp_path_factory.mktemp("numbers")
    recipe = replace(REGRESSION, epochs=1)
    with single_threaded():
        train(regression(str(catalog), folder / "run", optimisation=recipe, checkpoint_every=0))
    part = _part(catalog, folder, samples=7, targets=1)
    return InferencePlan(part, str(folder / "run" / CHECKPOINT), str(folder / "one"), batch_size=2, allow_outside=True)


@pytest.fixture(scope="module")
def classes(labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> InferencePlan:
    """Train the U-Net for an epoch; return the plan of one process for seven samples, of which six have labels."""
    folder = tmp_path_factory.mktemp("classes")
    recipe = replace(SEGMENTATION, epochs=1)
    with single_threaded():
        train(segmentation(str(labelled), folder / "run", optimisation=recipe, checkpoint_every=0))
    part = _part(labelled, folder, samples=7, without="labels")
    return InferencePlan(part, str(folder / "run"), str(folder / "one"), allow_outside=True)


@pytest.fixture(scope="module")
def runs(numbers: InferencePlan, classes: InferencePlan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Runs]:
    """Predict on one process, and with both networks on both grids in one job of four."""
    plans = [
        replace(plan, spatial=spatial, output=str(Path(plan.output).with_name(name)))
        for plan in (numbers, classes)
        for name, spatial in GRIDS.items()
    ]
    image = Path(classes.output).with_name("images")
    plans.append(replace(classes, spatial=GRIDS["four"], output=str(image), format=NIFTI))
    path = tmp_path_factory.mktemp("plans") / "plans"
    path.write_text("\n".join(plan.to_json() for plan in plans), encoding="utf-8")
    done = printed_by_ranks("tests.inference.test_run", path, ranks=RANKS)
    found = [InferenceResult.from_dict(json.loads(line)) for line in done.splitlines()]
    with single_threaded():
        return {
            "numbers": Runs(numbers, {"one": _infer(numbers), **dict(zip(GRIDS, found[: len(GRIDS)], strict=True))}),
            "classes": Runs(classes, {"one": _infer(classes), **dict(zip(GRIDS, found[len(GRIDS) : -1], strict=True))}),
        }


def main(path: Path) -> None:
    """Carry out plans as one of the ranks; the first one prints their figures."""
    dist.init_process_group("gloo")
    for line in path.read_text(encoding="utf-8").splitlines():
        plan = InferencePlan.from_json(line)
        result = _infer(plan, ProcessGrid(plan.spatial, dist.get_world_size(), dist.get_rank()))
        if dist.get_rank() == 0:
            sys.stdout.write(json.dumps(result.to_dict()) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def _inputs(plan: InferencePlan, saved: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield whole samples as the plain network gets them."""
    listed = Catalog.read(plan.catalog, allow_outside=True)
    with closing(VolumeDataset(listed, fields={"x": listed.datasets[0]})) as data:
        loader = DataLoader(data, transform=saved.moments.transform)
        with closing(loader):
            for sample, (volume,) in zip(data.sample_ids, loader, strict=True):
                yield sample, volume.double()


@pytest.mark.long
@torch.no_grad()
def test_targets_are_those_of_the_plain_network(runs: dict[str, Runs], catalog: Path) -> None:
    """On every grid, by hand to rounding, in the units of the catalogue, which was trained on under another name."""
    found, saved = runs["numbers"], Checkpoint.read(runs["numbers"].folder("run"))
    network = CosmoFlow(32, 2, 2).double().eval()
    network.load_state_dict(saved.learner["network"])
    trained = Catalog.read(catalog)
    names = trained.target_names
    split = split_samples(trained.samples, fraction=0.25, seed=0)
    values = np.array(
        [[trained.entry(one, "full").targets[name] for name in names] for one in split.training], np.float32
    )
    low, high = values.min(0), values.max(0)
    by_hand = {
        sample: network(inputs)[0].numpy() * (high - low) / 2 + (high + low) / 2
        for sample, inputs in _inputs(found.plan, saved)
    }
    for name, result in found.figures.items():
        table = pq.read_table(found.folder(name) / "predictions.parquet").to_pydict()
        assert table["sample"] == list(trained.samples[:7])
        assert list(table) == ["sample", f"predicted_{names[0]}", f"true_{names[0]}", f"predicted_{names[1]}"]
        predicted = np.stack([table[f"predicted_{one}"] for one in names], 1)
        np.testing.assert_allclose(predicted, np.stack(list(by_hand.values())), rtol=1e-9)
        mine = pq.read_table(found.folder("one") / "predictions.parquet").to_pydict()
        np.testing.assert_allclose(predicted, np.stack([mine[f"predicted_{one}"] for one in names], 1), rtol=1e-12)
        assert table[f"true_{names[0]}"] == [trained.entry(one, "full").targets[names[0]] for one in table["sample"]]
        errors = np.abs(predicted[:, 0] - table[f"true_{names[0]}"])
        assert result.mae[0] == pytest.approx(errors.mean())
        assert result.mae[1] is None
        assert (result.known, result.targets, result.mean_dice) == ((7, 0), names, None)
        with (found.folder(name) / "predictions.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [float(row[f"predicted_{names[1]}"]) for row in rows] == table[f"predicted_{names[1]}"]
        assert {path.name for path in found.folder(name).iterdir()} == {"predictions.csv", "predictions.parquet"}


@torch.no_grad()
def test_classes_are_those_of_the_plain_network(runs: dict[str, Runs]) -> None:
    """On every grid, voxel by voxel, as zarr-python and VolumeDataset read them; in float64 ties decide nothing."""
    found, saved = runs["classes"], Checkpoint.read(runs["classes"].folder("run"))
    network = UNet3D(1, 3, widths=(4, 8, 8)).double().eval()
    network.load_state_dict(saved.learner["network"])
    by_hand = {sample: network(inputs)[0].argmax(0).numpy() for sample, inputs in _inputs(found.plan, saved)}
    assert len({int(one) for volume in by_hand.values() for one in np.unique(volume)}) > 1
    for name in found.figures:
        folder = found.folder(name) / "predictions"
        with closing(VolumeDataset(folder)) as data:
            assert data.sample_ids == tuple(by_hand)
            for index, sample in enumerate(data.sample_ids):
                stored = zarr.open_array(folder / f"{sample}.zarr" / "predictions", mode="r")[:]
                assert isinstance(stored, np.ndarray)
                assert stored.dtype == np.uint8
                np.testing.assert_array_equal(stored, by_hand[sample], err_msg=f"{name} {sample}")
                np.testing.assert_array_equal(data[index][0][0].numpy(), stored)
        assert {path.name for path in found.folder(name).iterdir()} == {"predictions", "dice.csv"}


def test_images_are_the_classes_of_arrays(runs: dict[str, Runs]) -> None:
    """Four ranks and one rank, NIfTI and Zarr: the same classes at the same place, which any tool can overlay."""
    found = runs["classes"]
    arrays, images = found.folder("one") / "predictions", found.folder("images") / "predictions"
    catalog = Catalog.read(arrays)
    assert sorted(path.name for path in images.iterdir()) == [f"{sample}.nii.gz" for sample in catalog.samples]
    for sample in catalog.samples:
        entry = catalog.entry(sample, "predictions")
        assert (entry.spacing, entry.affine) == (SPACING, AFFINE)
        image = nib.load(images / f"{sample}.nii.gz")
        stored = np.asarray(zarr.open_array(arrays / f"{sample}.zarr" / "predictions", mode="r")[:])
        np.testing.assert_array_equal(np.asarray(image.dataobj).T, stored)
        assert image.get_data_dtype() == stored.dtype
        np.testing.assert_array_equal(image.affine, np.reshape(AFFINE, (4, 4))[:, [2, 1, 0, 3]])
        assert image.header.get_zooms() == SPACING[::-1]
    assert {path.name for path in found.folder("images").iterdir()} == {"predictions", "dice.csv"}
    dice = [(found.folder(name) / "dice.csv").read_text(encoding="utf-8") for name in ("one", "images")]
    assert dice[0] == dice[1]


@pytest.mark.long
def test_images_take_the_place_of_arrays(classes: InferencePlan, labelled: Path, tmp_path: Path) -> None:
    """And arrays that of images; what is neither stays. Targets are no images."""
    plan = replace(classes, catalog=_part(labelled, tmp_path, samples=2), output=str(tmp_path / "out"))
    there = tmp_path / "out" / "predictions"
    for form, suffix in ((ZARR, ".zarr"), (NIFTI, ".gz"), (NIFTI, ".gz"), (ZARR, ".zarr")):
        _infer(replace(plan, format=form))
        assert {path.suffix for path in there.iterdir()} - {".parquet"} == {suffix}
    _infer(replace(plan, format=NIFTI))
    drawn = there / "by_hand.nii.gz"
    nib.save(nib.Nifti1Image(np.zeros((2, 2, 2), "u1"), np.eye(4)), drawn)
    with pytest.raises(UsageError, match="predictions: found something else there"):
        _infer(plan)
    assert drawn.is_file()


def test_targets_are_no_images(numbers: InferencePlan, tmp_path: Path) -> None:
    """A regression has none."""
    _refused(replace(numbers, output=str(tmp_path), format=NIFTI), UsageError, "--format: found nifti for cosmoflow")


def test_dice_is_that_of_the_stored_classes(runs: dict[str, Runs], labelled: Path) -> None:
    """By hand, of whole volumes; a sample without labels is predicted all the same."""
    found, trained = runs["classes"], Catalog.read(labelled)
    folder = found.folder("one") / "predictions"
    expected = {}
    for sample in trained.samples[1:7]:
        with h5py.File(labelled.parent / trained.entry(sample, "labels").path) as file:
            truth = file["labels"][()]
        expected[sample] = _dice(np.asarray(zarr.open_array(folder / f"{sample}.zarr" / "predictions")[:]), truth)
    means = [float(np.mean(column)) for column in zip(*expected.values(), strict=True)]
    for name, result in found.figures.items():
        with (found.folder(name) / "dice.csv").open(encoding="utf-8") as file:
            rows = {row.pop("sample"): [float(value) for value in row.values()] for row in csv.DictReader(file)}
        assert rows == {one: pytest.approx([*dices, np.mean(dices)]) for one, dices in expected.items()}
        assert result.dice == pytest.approx(means)
        assert result.mean_dice == pytest.approx(np.mean(means))
        assert (result.samples, result.labelled, result.classes, result.mae) == (7, 6, (1, 2), ())


def _dice(found: NDArray[Any], truth: NDArray[Any]) -> list[float]:
    sizes = [(((found == one) & (truth == one)).sum(), (found == one).sum() + (truth == one).sum()) for one in (1, 2)]
    return [2 * both / size if size else 1.0 for both, size in sizes]


@pytest.mark.parametrize("extents", [(64, 64, 64), (48, 33, 20), (17, 16, 100)])
def test_no_file_belongs_to_two_ranks(extents: tuple[int, int, int]) -> None:
    """Every shard lies in one block, whatever the grid, and chunks divide shards; too many files are refused."""
    for depth, height, width in itertools.product((1, 2, 3, 4), repeat=3):
        grid = ProcessGrid((depth, height, width), depth * height * width)
        try:
            found = Chunking.of(grid, extents)
        except UsageError as error:
            assert "share no file" in str(error)  # noqa: PT017 - some of the grids
            continue
        assert all(shard % chunk == 0 for shard, chunk in zip(found.shards, found.chunks, strict=True))
        blocks = [grid.at(rank).block(extents) for rank in range(grid.world_size)]
        places = (range(0, extent, step) for extent, step in zip(extents, found.shards, strict=True))
        for start in itertools.product(*places):
            stop = tuple(min(i + w, e) for i, w, e in zip(start, found.shards, extents, strict=True))
            assert sum(block.contains(Box(start, stop)) for block in blocks) == 1
    with pytest.raises(UsageError, match=r"choose --spatial such that it divides the extents"):
        Chunking.of(ProcessGrid((3, 3, 1), 9), (512, 512, 512))


def test_samples_are_dealt_once() -> None:
    """Whatever the groups; a batch has samples of the same extents."""
    extents = [(8, 8, 8 + index % 3) for index in range(11)]
    for groups, size in itertools.product((1, 2, 3, 16), (1, 2, 4)):
        grid = ProcessGrid(world_size=groups)
        batches = [batch for rank in range(groups) for batch in deal(extents, grid.at(rank), batch_size=size)]
        assert sorted(index for batch in batches for index in batch) == list(range(11))
        assert all(len(batch) <= size and len({extents[one] for one in batch}) == 1 for batch in batches)


def _refused(plan: InferencePlan, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        _infer(plan)
    assert not Path(plan.output, "predictions").exists()


def test_what_is_no_checkpoint_is_refused(classes: InferencePlan, tmp_path: Path) -> None:
    """Nothing there, a file of another name, and one of other bytes."""
    plan = replace(classes, output=str(tmp_path / "out"))
    _refused(replace(plan, checkpoint=str(tmp_path)), NotFoundError, r"--checkpoint .*checkpoint\.pt: found no such")
    (tmp_path / "model.pt").touch()
    _refused(replace(plan, checkpoint=str(tmp_path / "model.pt")), UsageError, "found a file of another name")
    (tmp_path / CHECKPOINT).write_bytes(b"weights")
    _refused(replace(plan, checkpoint=str(tmp_path)), DataError, r"expected what voxload train wrote, format 1")


@pytest.mark.long
def test_catalogues_that_do_not_fit_are_refused(
    numbers: InferencePlan, classes: InferencePlan, catalog: Path, labelled: Path, tmp_path: Path
) -> None:
    """Datasets, channels, extents and grids."""
    plan, other = replace(classes, output=str(tmp_path)), replace(numbers, output=str(tmp_path))
    _refused(replace(plan, dataset="none"), NotFoundError, "no dataset 'none', expected one of")
    _refused(replace(plan, labels="none"), NotFoundError, "--labels: found no dataset 'none'")
    _refused(replace(other, labels="labels"), UsageError, "--labels: found 'labels' for cosmoflow")
    _refused(replace(other, catalog=str(labelled)), UsageError, "2 datasets.*name one with --dataset")
    _refused(replace(plan, catalog=str(catalog)), UsageError, "found 2 channels, expected 1")
    _refused(replace(plan, catalog=_volumes(tmp_path, 16, 16, 10)), UsageError, r"samples of \(16, 16, 10\).*of 4")
    cubes = _volumes(tmp_path, 64, 64, 64, channels=2)
    _refused(replace(other, catalog=cubes), UsageError, r"samples of \(64, 64, 64\), for which its weights do not fit")
    with pytest.raises(UsageError, match="more ranks than voxels"):
        Inference(plan, ProcessGrid((32, 1, 1), 32))


def _volumes(folder: Path, *extents: int, channels: int = 1) -> str:
    """Write a catalogue of one volume without labels."""
    name = f"{'-'.join(map(str, extents))}"
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file["x"] = np.ones((channels, *extents), np.int16)
    entry = Entry("a", f"{name}.h5", "x", (channels, *extents), "<i2", "CDHW", 1)
    Catalog.from_entries([entry], folder).write(folder / f"{name}.parquet")
    return str(folder / f"{name}.parquet")


def test_a_run_that_fails_leaves_what_was_there(classes: InferencePlan, labelled: Path, tmp_path: Path) -> None:
    """Predictions appear whole or not at all, and the next run removes what a killed one left."""
    part, out = _part(labelled, tmp_path, samples=2), tmp_path / "out"
    plan = replace(classes, catalog=part, output=str(out))
    left = out / ".predictions.partial-node-1"
    left.mkdir(parents=True)
    _infer(plan)
    assert {path.name for path in out.iterdir()} == {"predictions", "dice.csv"}
    before = {path: path.stat().st_mtime_ns for path in (out / "predictions").rglob("*")}
    with pytest.raises(DataError, match=r"labels of sample .*: found values from 0 to \d+, expected 0 to 2"):
        _infer(replace(plan, dataset="density", labels="density"))
    assert {path: path.stat().st_mtime_ns for path in (out / "predictions").rglob("*")} == before
    (out / "predictions" / "catalog.parquet").unlink()
    with pytest.raises(UsageError, match="predictions: found something else there"):
        _infer(plan)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="writing"):
        _infer(replace(plan, output=str(tmp_path / "file")))


def test_extents_may_differ(classes: InferencePlan, tmp_path: Path) -> None:
    """Each volume has an array of its own; ids that are no names of folders are kept."""
    rng, entries = np.random.default_rng(0), []
    for index, extents in enumerate([(16, 16, 8), (8, 16, 24), (16, 16, 8)]):
        with h5py.File(tmp_path / f"{index}.h5", "w") as file:
            file["x"] = rng.poisson(2, extents).astype(np.int16)
        entries.append(Entry(f"ward/{index}", f"{index}.h5", "x", extents, "<i2", "DHW", 1))
    Catalog.from_entries(entries, tmp_path).write(tmp_path / "catalog.parquet")
    plan = replace(classes, catalog=str(tmp_path / "catalog.parquet"), output=str(tmp_path / "out"), batch_size=2)
    result = _infer(plan)
    assert (result.samples, result.labelled, result.mean_dice, result.files) == (3, 0, None, ("predictions",))
    found = Catalog.read(tmp_path / "out" / "predictions" / "catalog.parquet")
    assert [found.entry(one, "predictions").shape for one in found.samples] == [each.shape for each in entries]
    assert found.samples == ("ward/0", "ward/1", "ward/2")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
