"""Registry: loaders by name, what they need, and those of other packages."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.benchmark.stored import store
from tests.laws.bench_loader import check_loader
from tests.support import processes
from voxload.benchmark.loaders import registry
from voxload.benchmark.loaders.kind import Kind, check_installed
from voxload.benchmark.loaders.protocol import Task
from voxload.benchmark.loaders.volumes import dataset_of, volumes_of
from voxload.benchmark.workload.workload import Samples, Share, Supply, Workload
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

NAMES = {
    "voxload",
    "voxload-process",
    "torch-h5py",
    "torch-h5py-whole",
    "h5py",
    "torch-zarr",
    "torch-zarrs",
    "torch-npy",
    "tensorstore",
    "monai",
    "dali",
    "torch-voxload",
}
THIRD_PARTY = """
import numpy as np
import torch


class Loading:
    def __init__(self, task):
        self._task = task

    def epoch(self, number, indices):
        size = self._task.workload.share.batch_size
        for at in range(0, len(indices), size):
            paths = [self._task.volumes[index].path for index in indices[at : at + size]]
            yield torch.stack([torch.from_numpy(np.load(path)) for path in paths])

    def counts(self):
        return {}

    def close(self):
        pass


class Loader:
    name, title, needs, formats = "tiny", "a tiny loader", ("numpy",), ("npy",)

    def build(self, task):
        return Loading(task)


class Wrong(Loader):
    name = "other"
"""
NEVER = "nowhere_at_all:Never"
"""What would make a loader that is refused before that."""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a package of loaders, as its wheel would: a module, and entry points beside it."""
    site = tmp_path / "site"

    def put(*points: str) -> None:
        info = site / "tiny_loaders-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-loaders\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{registry.ENTRY_POINTS}]", *points, ""]))
        (site / "tiny_loaders.py").write_text(THIRD_PARTY)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "tiny_loaders", raising=False)

    return put


def _task(location: str, supply: Supply | None = None) -> Task:
    workload = Workload(Samples(location), Share(batch_size=3), supply=supply or Supply(threads=1))
    data = dataset_of(workload, ProcessGrid())
    volumes = volumes_of(data)
    data.close()
    return Task(workload, data.grid, data, volumes)


def test_built_in_loaders_have_names() -> None:
    """Each is found by the name that tables and commands use."""
    assert {kind.name for kind in registry.kinds()} == NAMES
    for name in NAMES:
        assert registry.named(name).name == name
    with pytest.raises(UsageError, match=r"'pytables', expected one of voxload, voxload-process, torch-h5py.*dali"):
        registry.named("pytables")


def test_what_makes_a_loader_is_there() -> None:
    """Names that are looked up when a loader is built are those of its module, whether or not the library is there."""
    for kind in registry.BUILT_IN:
        if isinstance(kind, Kind):
            module, _, name = kind.make.partition(":")
            spec = find_spec(f"voxload.benchmark.loaders.{module}")
            assert spec is not None
            assert spec.origin is not None
            body = ast.parse(Path(spec.origin).read_text()).body
            assert name in {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.long
def test_libraries_are_not_imported_before_they_are_measured() -> None:
    """Whoever measures one loader does not wait for, or hold, the others."""
    program = "import sys; from voxload.benchmark.loaders import registry; registry.kinds(); print(*sys.modules)"
    done = processes.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"zarr", "zarrs", "monai", "tensorstore", "nvidia.dali"} & set(done.stdout.split())


def test_what_is_missing_is_named_with_what_to_install(tmp_path: Path) -> None:
    """Nothing is left out in silence."""
    kind = Kind("odd", "odd", ("numpy", "nowhere_at_all", "nowhere.deep"), ("npy",), NEVER)
    assert registry.missing(kind) == ("nowhere_at_all", "nowhere.deep")
    with pytest.raises(UsageError, match=r"no module nowhere_at_all, nowhere\.deep.*pip install nowhere_at_all"):
        kind.build(_task(store("npy", tmp_path / "samples")))
    package = Kind("dali", "", ("nvidia.dali",), (), NEVER)
    if registry.missing(package):
        with pytest.raises(UsageError, match="pip install nvidia-dali-cuda120"):
            check_installed(package)


def test_what_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is there and fails is not taken for one that is missing."""
    (tmp_path / "half_installed.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = Kind("odd", "odd", ("half_installed",), ("npy",), NEVER)
    assert registry.missing(kind) == ()
    with pytest.raises(UsageError, match="half_installed, which does not start: No module named 'nowhere_at_all'"):
        check_installed(kind)


def test_what_makes_a_loader_is_imported_before_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to the first batch is none of importing."""
    module = "voxload.benchmark.loaders.hdf5_array"
    monkeypatch.delitem(sys.modules, module, raising=False)
    registry.prepare(registry.named("h5py"))
    assert module in sys.modules


def test_a_loader_of_another_package_is_found_and_keeps_the_laws(tmp_path: Path, install: Install) -> None:
    """What registers as an entry point is as good as ours."""
    install("tiny = tiny_loaders:Loader")
    assert registry.kinds()[-1].name == "tiny"
    task = _task(store("npy", tmp_path / "samples"))
    check_loader(registry.named("tiny"), task, lambda index: task.data[index][0])
    task.data.close()


@pytest.mark.parametrize(
    ("point", "found"),
    [
        ("tiny = tiny_loaders:Absent", "AttributeError"),
        ("tiny = nowhere_at_all:Loader", "ModuleNotFoundError"),
        ("tiny = tiny_loaders:Wrong", "calls itself 'other'"),
        ("h5py = tiny_loaders:Loader", "the name of another loader"),
    ],
)
def test_entry_points_that_lead_nowhere_are_named(point: str, found: str, install: Install) -> None:
    """A package that is broken is said to be; loaders of this package work all the same."""
    install(point)
    with pytest.raises(UsageError, match=found):
        registry.kinds()
    assert registry.named("voxload").name == "voxload"
    if point.startswith("tiny"):
        with pytest.raises(UsageError, match=found):
            registry.named("tiny")


def test_what_a_loader_cannot_do_is_refused(tmp_path: Path) -> None:
    """Formats, URLs, tiers, threads and unequal samples: each is said before a byte is read."""
    hdf5, npy = (_task(store(form, tmp_path / form)) for form in ("hdf5", "npy"))
    kind = registry.named("torch-h5py")
    with pytest.raises(UsageError, match="npy, expected one of hdf5"):
        kind.build(npy)
    for supply, found in (
        (Supply(memory=1), "memory that keeps"),
        (Supply(disk="/nowhere", disk_bytes=1), "a disk that keeps"),
    ):
        with pytest.raises(UsageError, match=found):
            kind.build(_with(hdf5, supply))
    keeping = Kind("odd", "odd", (), ("hdf5",), NEVER, keeps_memory=True)
    with pytest.raises(UsageError, match="loader odd: found policy 'lru', expected none"):
        keeping.build(_with(hdf5, Supply(memory=1, policy="lru")))
    threaded = Kind("odd", "odd", (), ("hdf5",), NEVER, least_threads=2)
    with pytest.raises(UsageError, match="threads of loader odd: found 1, expected 2 or more"):
        threaded.build(hdf5)
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no cuda"):
            kind.build(_with(hdf5, Supply(device="cuda")))
    first, *others = hdf5.volumes
    far, odd = replace(first, path="s3://bucket/a.h5"), replace(first, shape=(1, 2, 3, 4))
    for volumes, found in (((far,), "a URL"), ((*others, odd), r"\(1, 2, 3, 4\)"), ((), "none")):
        with pytest.raises(UsageError, match=found):
            kind.build(replace(hdf5, volumes=volumes))


def _with(task: Task, supply: Supply) -> Task:
    return replace(task, workload=replace(task.workload, supply=supply))
