"""Every loader that a benchmark compares gives the blocks of VolumeDataset, in order, from every format it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.benchmark.stored import COUNT, store
from tests.laws.bench_loader import check_loader
from voxload.benchmark.loaders import dali_numpy, registry
from voxload.benchmark.loaders.protocol import LoaderKind, Task, epoch_indices
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

pytestmark = pytest.mark.usefixtures("no_leaks")

SPATIAL = (2, 1, 2)
"""Uneven blocks along two axes; the third is whole, so that a periodic halo meets itself."""
RANK = 2
CASES = (
    (0, "zero", 1, "CDHW", "<i2"),
    (0, "zero", 3, "DHWC", "<u2"),
    (2, "zero", 1, "DHW", "<i2"),
    (2, "zero", 3, "CDHW", ">f4"),
    (2, "periodic", 1, "WHCD", "<i2"),
    (2, "periodic", 3, "CDHW", "<i2"),
)
"""All halos with all sizes of batches, over several orders of the stored axes and types: halo, boundary, batch, axes,
type. A batch of one is alone; the last one of three is smaller."""
SHORT = (CASES[3], CASES[4])
"""Both boundaries, sizes of batches and byte orders, without channels and with the axes turned round: all of them with
voxload's own loader, and by turns with the others."""
PAIRS = [(kind, form) for kind in registry.BUILT_IN for form in kind.formats]
NATIVE_ONLY = {"dali": ("npy",), "torch-zarrs": ("zarr2",)}
"""Formats that a library reads in this machine's byte order only."""
Folder = Callable[..., str]
Build = Callable[..., Task]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return what stores samples, each kind of them once."""
    made: dict[tuple[str, str, str], str] = {}

    def get(form: str, axes: str = "CDHW", dtype: str = "<i2") -> str:
        key = (form, axes, dtype)
        if key not in made:
            made[key] = store(form, tmp_path_factory.mktemp("stored") / "samples", axes=axes, dtype=dtype)
        return made[key]

    return get


@pytest.fixture
def build() -> Iterator[Build]:
    """Yield what makes tasks; their data sets are closed afterwards."""
    opened = []

    def make(location: str, *, supply: Supply | None = None, rank: int = RANK, ranks: int = 4, **share: Any) -> Task:
        words: dict[str, Any] = {"spatial": SPATIAL, "batch_size": 3, **share}
        supplied = supply or Supply(threads=1)
        workload = Workload(Samples(location), Share(**words), Length(epochs=5), supplied)
        data = dataset_of(workload, ProcessGrid(words["spatial"], ranks, rank))
        opened.append(data)
        return Task(workload, data.grid, data, volumes_of(data))

    yield make
    for data in opened:
        data.close()


def _present(kind: LoaderKind) -> LoaderKind:
    """Return a kind, or skip the test by name where what it needs is not installed."""
    absent = registry.missing(kind)
    if absent:
        pytest.skip(f"loader {kind.name}: no module {', '.join(absent)}")
    return kind


def _check(kind: LoaderKind, task: Task) -> None:
    check_loader(_present(kind), task, cache(lambda index: task.data[index][0]))


def _is_short(turn: int, case: tuple[int, str, int, str, str]) -> bool:
    return case == SHORT[turn % 2] or (PAIRS[turn][0].name == "voxload" and case in SHORT)


@pytest.mark.few_cases(5)
@pytest.mark.parametrize(
    ("kind", "form", "case"),
    [
        pytest.param(
            kind,
            form,
            case,
            id="-".join(map(str, (kind.name, form, *case))),
            marks=() if _is_short(turn, case) else pytest.mark.long,
        )
        for turn, (kind, form) in enumerate(PAIRS)
        for case in CASES
    ],
)
def test_blocks_are_those_of_the_data_set(
    kind: LoaderKind, form: str, case: tuple[int, str, int, str, str], folder: Folder, build: Build
) -> None:
    """Bit for bit, in order, in native byte order and (C, d, h, w) whatever the order on disk; without channels one."""
    halo, boundary, batch, axes, dtype = case
    if form in NATIVE_ONLY.get(kind.name, ()):
        dtype = dtype.replace(">", "<")
    _check(kind, build(folder(form, axes, dtype), halo=halo, boundary=boundary, batch_size=batch))


@pytest.mark.parametrize("name", NATIVE_ONLY)
def test_the_other_byte_order_is_refused_where_a_library_knows_none(name: str, folder: Folder, build: Build) -> None:
    """What the library would end its pipeline at is said before that is built."""
    kind = _present(registry.named(name))
    for form in NATIVE_ONLY[name]:
        with pytest.raises(UsageError, match="this machine's byte order"):
            kind.build(build(folder(form, "CDHW", ">f4")))


@pytest.mark.parametrize("name", ["torch-h5py", "torch-h5py-whole", "torch-voxload"])
def test_torch_without_workers_reads_in_the_consumer(name: str, folder: Folder, build: Build) -> None:
    """No thread or process beside the consumer is one that is asked for."""
    _check(registry.named(name), build(folder("hdf5"), halo=2, supply=Supply(threads=0)))


@pytest.mark.parametrize("kept", [0, 3, COUNT])
def test_monai_keeps_as_many_blocks_as_fit(kept: int, folder: Folder, build: Build, monkeypatch: Any) -> None:
    """Blocks that are cached are read once, by the threads that fill the cache, and are right in every epoch."""
    from voxload.benchmark.loaders import monai_loading  # noqa: PLC0415 - takes seconds

    task = build(folder("hdf5"))
    nbytes = task.data[0][0].nbytes
    task = build(folder("hdf5"), supply=Supply(threads=1, memory=2 * kept * nbytes + nbytes))
    task = replace(task, node_ranks=2)
    read: list[int] = []
    one = monai_loading.ReadBlock.__call__

    def counted(self: monai_loading.ReadBlock, data: int) -> Any:
        read.append(data)
        return one(self, data)

    monkeypatch.setattr(monai_loading.ReadBlock, "__call__", counted)
    _check(registry.named("monai"), task)
    assert sorted(read) == list(range(kept))


def test_what_monai_makes_anew_is_no_cache(folder: Folder, build: Build, monkeypatch: Any) -> None:
    """It caches what transforms of its own kind make, and says nothing of any other."""
    from voxload.benchmark.loaders import monai_loading  # noqa: PLC0415 - takes seconds

    read = monai_loading.ReadBlock(build(folder("hdf5")))
    monkeypatch.setattr(monai_loading, "ReadBlock", lambda _: read.__call__)
    task = build(folder("hdf5"), supply=Supply(threads=1, memory=1 << 20))
    with pytest.raises(InternalError, match="a cached block that is made anew"):
        _present(registry.named("monai")).build(task)


def test_dali_has_one_pipeline_for_all_epochs(folder: Folder, build: Build, monkeypatch: Any) -> None:
    """Building one takes long, and what it keeps serves all; one that was left early is of no use."""
    kind = _present(registry.named("dali"))
    built: list[list[str]] = []
    one = dali_numpy.DaliLoading._built

    def counted(self: dali_numpy.DaliLoading, files: list[str]) -> Any:
        built.append(files)
        return one(self, files)

    monkeypatch.setattr(dali_numpy.DaliLoading, "_built", counted)
    task = build(folder("npy"))
    with closing(kind.build(task)) as loader:
        for number, builds in ((0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (3, 3), (4, 3)):
            indices = epoch_indices(task.workload.share, len(task.data), task.grid, number)
            batches = loader.epoch(number, indices)
            for at in range(0, len(indices), 3):  # as ranks do, which ask for no batch behind the last one
                wanted = [task.data[index][0].numpy() for index in indices[at : at + 3]]
                np.testing.assert_array_equal(next(batches).numpy(), np.stack(wanted))
            assert len(built) == builds
    assert [len(files) for files in built] == [45, 45, 18]
