"""What objects say of themselves: never an exception, never a byte read, never markup out of a name."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import torch

import voxload
import voxload.errors
from tests.benchmark.documents import Recipe, document
from tests.support import processes
from voxload.benchmark.report.result import Result
from voxload.benchmark.results.compare import compare_results
from voxload.convert import convert
from voxload.display.description import Described, Description
from voxload.plan import Plan
from voxload.plan.forecast.forecast import Oracle
from voxload.plan.forecast.setups import Setup
from voxload.plan.forecast.training import Training
from voxload.plan.platform.files import load
from voxload.readers import Location, open_reader
from voxload.readers.handles import Handles

NASTY = "<script>alert(1)<b>"
"""A name that files and datasets may have."""
_KNOWN = {"div", "p", "b", "table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "title", "g", "path", "text"}


class _Tags(HTMLParser):
    """Collects what is markup."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        assert not any(name.startswith("on") or name in {"src", "href"} for name, _ in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check(found: Any) -> str:
    """Look at both forms of an object and return the HTML."""
    line, html = repr(found), found._repr_html_()
    assert all(len(each) <= 200 for each in line.splitlines())
    assert len(line.splitlines()) <= 10
    assert line.startswith(type(found).__name__)
    assert "not to be described" not in line + html, line
    assert len(html) < 40_000
    tags = _Tags()
    tags.feed(html)
    assert tags.tags <= _KNOWN
    assert tags.open == []
    return str(html)


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Return a pattern of two files with names that are markup."""
    for number in range(2):
        with h5py.File(tmp_path / f"u{number}{NASTY}.h5", "w") as file:
            file[NASTY] = np.ones((8, 8, 8), "<i2")
    return f"{tmp_path}/*.h5"


@pytest.fixture
def opened(files: str) -> voxload.VolumeDataset:
    """Return a data set over those files, as rank 3 of 4 sees it."""
    grid = voxload.ProcessGrid((1, 2, 2), 4, 3)
    return voxload.VolumeDataset(files, fields={f"x{NASTY}": NASTY}, grid=grid, halo=1)


def test_a_data_set_before_and_after_it_is_read(opened: voxload.VolumeDataset) -> None:
    """Extents are known once a file is open; names of files, datasets and fields stay names."""
    before = _check(opened)
    assert "known once a sample is read" in before
    assert "not read yet" in repr(opened)
    assert [*opened._handles._handles] == []
    _ = opened[0]
    after = _check(opened)
    assert "1 x 8 x 8 x 8" in after
    assert "[-1:9, 3:9, 3:9]" in after
    assert "marked is block [0:8, 4:8, 4:8]" in after
    assert "&lt;script&gt;" in after
    assert "int16" in repr(opened)
    opened.close()
    assert "known once a sample is read" in _check(opened)


def test_files_that_went(opened: voxload.VolumeDataset, tmp_path: Path) -> None:
    """A repr looks at no file, so it does not matter whether there is one."""
    _ = opened[0]
    for path in tmp_path.iterdir():
        path.unlink()
    _check(opened)
    opened.close()
    _check(opened)


def test_nothing_is_read(opened: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is a file opened, nor a reader that is open asked for a voxel or a cost."""
    loader = voxload.DataLoader(opened, num_workers=1)
    _ = opened[0]

    def refused(*_: object, **__: object) -> Any:
        raise AssertionError

    (reader,) = (handle.reader for handle in opened._handles._handles.values())
    assert reader is not None
    for name in ("read_into", "cost"):
        monkeypatch.setattr(type(reader), name, refused)
    monkeypatch.setattr(Handles, "enter", refused)
    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("os.open", refused)
    monkeypatch.setattr("os.stat", refused)
    texts = [each for one in (opened, loader) for each in (repr(one), one._repr_html_())]
    monkeypatch.undo()
    assert all("not to be described" not in text for text in texts)


def test_ranks_are_not_looked_up_by_a_repr(files: str) -> None:
    """A job may know its ranks later only: printing a data set settles nothing."""
    data = voxload.VolumeDataset(files, fields={"x": NASTY}, grid=(1, 1, 1))
    loader = voxload.DataLoader(data)
    assert "looked up when first needed" in _check(data)
    assert "looked up when first needed" in _check(loader)
    assert not data.is_grid_known
    _ = data[0]
    _check(data)
    _check(loader)


_LATE = """
import sys, torch.distributed as dist, voxload
data = voxload.VolumeDataset(sys.argv[1], fields={"x": sys.argv[2]}, grid=(1, 1, 2))
loader = voxload.DataLoader(data)
for one in (data, loader):
    assert "not to be described" not in repr(one) + one._repr_html_()
dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[4]), world_size=2)
if dist.get_rank() == 1:  # one rank alone: a collective call would hang
    repr(data), data._repr_html_(), repr(loader), loader._repr_html_()
dist.barrier()
print(data.grid, len(data), tuple(data[0][0].shape))
if dist.get_rank() == 0:
    repr(data), data._repr_html_(), repr(loader), loader._repr_html_()
dist.barrier()
dist.destroy_process_group()
"""


def test_a_repr_of_one_rank_is_no_collective_call(files: str, tmp_path: Path) -> None:
    """Printed before torch.distributed is initialised, and by one rank alone after: each has its own half."""
    words = [sys.executable, "-c", _LATE, files, NASTY, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen([*words, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=300) for rank in ranks]
    for number, (out, error) in enumerate(told):
        seen = f"ProcessGrid(spatial=(1, 1, 2), world_size=2, rank={number}) 2 (1, 8, 8, 4)"
        assert out.splitlines()[-1:] == [seen], error


def test_a_grid_that_does_not_fit(files: str) -> None:
    """The data set says so; reading it raises."""
    grid = voxload.ProcessGrid((16, 1, 1), 16, 0)
    data = voxload.VolumeDataset(files, fields={"x": NASTY}, grid=grid)
    with pytest.raises(voxload.errors.UsageError):
        _ = data[0]
    assert "does not fit the grid" in _check(data)


def test_loaders(files: str) -> None:
    """What was delivered is told; other data sets keep theirs to themselves, for their length may take long."""
    data = voxload.VolumeDataset(files, fields={f"x{NASTY}": NASTY}, grid=voxload.ProcessGrid())
    loader = voxload.DataLoader(data, batch_size=2, num_workers=1, cache=voxload.Cache(memory="1MiB"))
    assert "delivered so far" not in _check(loader)
    for _ in loader:
        pass
    html = _check(loader)
    assert "1 batch, " in html
    assert "memory 1 MiB" in html
    loader.close()
    _check(loader)

    class Slow(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            raise AssertionError

        def __getitem__(self, index: int) -> int:
            raise AssertionError

    assert "none: single samples" in _check(voxload.DataLoader(data, batch_size=None))
    assert "of the batch sampler" in _check(voxload.DataLoader(data, batch_sampler=[[0], [1]]))
    plain = voxload.DataLoader(Slow(), sampler=[0], batch_size=3)
    assert repr(plain) == "DataLoader(Slow, batch size 3)"
    _check(plain)


def test_a_lock_that_is_held_is_not_waited_for(opened: voxload.VolumeDataset) -> None:
    """A debugger may stop anywhere."""
    _ = opened[0]
    loader = voxload.DataLoader(opened, num_workers=1)
    pipeline: Any = loader._pipeline
    with opened._handles._lock, pipeline.recorder._lock:
        _check(opened)
        _check(loader)


def _catalog(folder: Path, rows: int) -> voxload.Catalog:
    columns = {
        "sample": [f"s{number:07d}{NASTY if number == 0 else ''}" for number in range(rows)],
        "path": pa.array(["a.h5"] * rows),
        "dataset": ["full"] * rows,
        "shape": pa.array([[4, 8, 8, 8]] * rows, pa.list_(pa.int64())),
        "dtype": ["<i2"] * rows,
        "axes": ["CDHW"] * rows,
        "stored_bytes": pa.array([4096] * rows, pa.int64()),
        **{f"t{number}": pa.array(np.arange(rows, dtype=float)) for number in range(40)},
    }
    return voxload.Catalog(pa.table(columns), folder)


def test_catalogues_small_and_large(tmp_path: Path) -> None:
    """None, one and many rows and columns; the last are counted."""
    for rows in (0, 1, 20_000):
        html = _check(_catalog(tmp_path, rows))
        assert f"{rows:,}" in html
    assert "19,994 rows" in html
    assert "&lt;script&gt;" in html
    assert "t39" not in html


def test_a_data_set_of_a_catalogue_knows_its_extents(tmp_path: Path) -> None:
    """What the catalogue says is shown without opening anything."""
    (tmp_path / "raw").mkdir()
    np.save(tmp_path / "raw" / "a.npy", np.zeros((8, 8, 8), "<f4"))
    convert(tmp_path / "raw", tmp_path / "out")
    data = voxload.VolumeDataset(str(tmp_path / "out"), grid=voxload.ProcessGrid((2, 1, 1), 2, 1))
    assert "1 x 8 x 8 x 8 float32" in repr(data)
    assert "[4:8, 0:8, 0:8]" in _check(data)
    with_patches = voxload.VolumeDataset(str(tmp_path / "out"), patches=voxload.Patches(4, stride=4))
    assert "8 samples" in repr(with_patches)
    _check(with_patches)
    _check(voxload.Catalog.read(tmp_path / "out"))
    reader = open_reader(Location(str(tmp_path / "out" / "a.zarr")))
    reader.close()
    assert "chunks" in _check(reader.describe())
    shutil.rmtree(tmp_path / "out")
    _check(data)


def _stored(folder: Path) -> str:
    """Write a file with volumes of several kinds and return its path."""
    with h5py.File(folder / "many.h5", "w") as file:
        file["series"] = np.zeros((6, 2, 8, 8, 8), "f4")
        file["fine"] = np.zeros((8, 8, 8), "i2")
        file["coarse"] = np.zeros((4, 4, 4), "i2")
    return str(folder / "many.h5")


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"fields": {"x": "series"}, "axes": "TCDHW"}, "2 x 8 x 8 x 8"),
        ({"fields": {"x": "series"}, "axes": "TCDHW", "window": voxload.Window(2, horizon=1)}, "6 x 8 x 8 x 8"),
        ({"fields": {"x": "fine", "y": "coarse"}, "axes": "DHW", "coarser": {"y": 2}}, "1 x 4 x 4 x 4"),
        ({"fields": {"x": "fine"}, "axes": "DHW", "patches": voxload.Patches(4, per_sample=3)}, "1 x 8 x 8 x 8"),
        ({"fields": {"x": "fine"}, "axes": "DHW", "patches": voxload.Patches(4, stride=2)}, "1 x 4 x 4 x 4"),
    ],
)
def test_data_sets_of_all_kinds(tmp_path: Path, options: dict[str, Any], shape: str) -> None:
    """Series, windows, coarse fields and patches; subsets, and what was sent to another process."""
    data = voxload.VolumeDataset(_stored(tmp_path), **options)
    _check(data)
    _ = data[0]
    for one in (data, data.subset([0])):
        _ = one[0]
        assert shape in _check(one)
    _check(pickle.loads(pickle.dumps(data)))  # noqa: S301 - our own


@pytest.mark.parametrize("spatial", [(1, 1, 1), (2, 2, 2), (1000, 2, 3)])
def test_grids(spatial: tuple[int, int, int]) -> None:
    """The plain repr still makes the grid."""
    grid = voxload.ProcessGrid(spatial, world_size=int(np.prod(spatial)) * 2, rank=3 % int(np.prod(spatial)))
    assert eval(repr(grid), {"ProcessGrid": voxload.ProcessGrid}) == grid  # noqa: S307 - our own
    assert "2 of" in _check(grid)


def test_plans() -> None:
    """With thousands of layers, too, and of a sample that it does not fit."""
    plan = Plan("net<b>", (4, 64, 64, 64), "laptop", (2, 2, 1), 4, 1, predicted={"step": 0.25})
    assert "0.25 s a step" in repr(plan)
    assert "2 x 2 x 1" in _check(plan)
    large = Plan("net", (4, 1, 1, 1), "x", (2, 1, 1), 1, 1, layers={f"l{number}": "filter" for number in range(9999)})
    assert "more" in _check(large)


def test_forecasts() -> None:
    """What `voxload plan` ranks: the setup, a step by its parts, and memory, whether or not it fits."""
    oracle = Oracle(Training("cosmoflow", (4, 64, 64, 64), 4), load("lassen"))
    forecast = oracle.forecast(Setup((2, 1, 1), 2, 2))
    assert "2 x 2x1x1, 4 ranks, " in repr(forecast)
    html = _check(forecast)
    assert "backward" in html
    assert "2 blocks" in html
    assert "does not fit" in _check(replace(forecast, limit=1))


def test_results() -> None:
    """A result of a thousand steps is a line; labels are told."""
    first = document(Recipe(labels=(NASTY,), steps=300))
    second = document(Recipe(loader="another", seed=3, repetitions=1))
    html = _check(Result(f"a{NASTY}", "a", first))
    assert "&lt;script&gt;" in html
    for one in (first, second, first.runs[0], compare_results(first, second)):
        _check(one)
    assert "1 run" in repr(second)


def _unmade(kind: Any) -> Any:
    """Return an object whose `__init__` did not run."""
    return kind.__new__(kind)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _unmade(voxload.VolumeDataset),
        lambda: _unmade(voxload.DataLoader),
        lambda: _unmade(voxload.Catalog),
        lambda: _unmade(Plan),
    ],
)
def test_an_object_that_was_not_made(make: Callable[[], Any]) -> None:
    """A traceback may print one: it says what it is, and what kept it from saying more."""
    found = make()
    assert repr(found).startswith(f"{type(found).__name__}(not to be described: ")
    assert "not to be described" in found._repr_html_()


def test_whatever_fails_is_named_and_does_not_get_out() -> None:
    """An exception's own text may be markup, or fail itself: its class is told."""

    class Odd(Described):
        def _described(self) -> Description:
            raise KeyError(NASTY)

    assert repr(Odd()) == "Odd(not to be described: KeyError)"
    assert "KeyError" in Odd()._repr_html_()


def test_importing_stays_light() -> None:
    """The package and a grid's HTML wait for neither numpy nor torch."""
    text = (
        "import sys, voxload; voxload.ProcessGrid()._repr_html_();"
        "print(sorted({'numpy', 'torch', 'matplotlib', 'pyarrow'} & sys.modules.keys()))"
    )
    done = processes.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
