"""DLIO's synthetic HDF5 files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.laws.source import check_converts, check_source, coordinates
from voxload.convert.sources import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.simulation.benchmarks import Dlio
from voxload.errors import DataError, UsageError


def _write(path: Path, *records: npt.NDArray[Any], labels: Any = None, **storage: Any) -> Path:
    """Write what DLIO's generator writes: records of all samples a dataset, then their labels."""
    with h5py.File(path, "w", libver="latest") as file:
        for number, values in enumerate(records):
            file.create_dataset(f"records_{number}", data=values, **storage)
        file.create_dataset("labels", data=[0] * len(records[0]) if labels is None else labels)
    return path


@pytest.mark.parametrize("storage", [{}, {"chunks": (2, 2, 3, 4), "compression": "gzip", "maxshape": (3, 8, 9, 9)}])
def test_no_axis_moves_in_dlio_records(tmp_path: Path, storage: dict[str, Any]) -> None:
    """Every record is a sample, with a volume a dataset and its label as target."""
    records = coordinates((3, 4, 5, 6), "<i2")
    path = _write(tmp_path / "img_0_of_1.hdf5", records, records + 1, labels=[5, 6, 7], **storage)
    assert Dlio().claims(Probe(path))
    sources = Dlio().sources(Probe(path), Hints())
    said = [(cube.part, cube.dataset, cube.targets) for cube in (source.describe() for source in sources)]
    assert said == [(f"{k:04d}", f"records_{which}", {"label": 5.0 + k}) for k in range(3) for which in range(2)]
    for number, source in enumerate(sources):
        check_source(source, (records + number % 2)[number // 2][np.newaxis], seed=number)
        assert source.describe().scratch_bytes == (2 * 2 * 2 * 3 * 4 * 2 if storage else 0)
    volumes = {(f"img_0_of_1_{k:04d}", f"records_{which}"): records[k : k + 1] + which for k, which in np.ndindex(3, 2)}
    check_converts(path, volumes, targets={f"img_0_of_1_{k:04d}": {"label": 5.0 + k} for k in range(3)})


def test_four_axes_of_a_record_need_names(tmp_path: Path) -> None:
    """Which axis of a record holds the channels is the caller's to say; one sample a file has no part."""
    volume = coordinates((2, 3, 4, 5), ">u4")
    path = _write(tmp_path / "r.h5", volume.transpose(1, 2, 3, 0)[np.newaxis])
    with pytest.raises(UsageError, match=r"r\.h5.*four axes without names, shape \(3, 4, 5, 2\).*--axes"):
        Dlio().sources(Probe(path), Hints())
    (source,) = Dlio().sources(Probe(path), Hints(axes="DHWC"))
    check_source(source, volume)
    assert source.describe().part == ""


def test_dlio_faults(tmp_path: Path) -> None:
    """Images, a label too few and no record at all are refused."""
    path = _write(tmp_path / "i.h5", np.zeros((2, 8, 8), "u1"))
    assert Dlio().claims(Probe(path))
    with pytest.raises(UsageError, match=r"i\.h5.*records of 2 axes, shape \(8, 8\)"):
        Dlio().sources(Probe(path), Hints())
    path = _write(tmp_path / "l.h5", np.zeros((2, 3, 3, 3), "u1"), labels=[1, 2, 3])
    with pytest.raises(DataError, match=r"l\.h5.*found 2 records, expected 3"):
        Dlio().sources(Probe(path), Hints())
    path = _write(tmp_path / "n.h5", np.zeros((0, 3, 3, 3), "u1"))
    with pytest.raises(DataError, match="extents of 1 or more"):
        Dlio().sources(Probe(path), Hints())


def test_other_names_are_not_dlio(tmp_path: Path) -> None:
    """Records without labels, and records among other datasets, are another tool's; an old DLIO's images are known."""
    cases = {
        ("records_0",): False,
        ("records_0", "labels", "x"): False,
        ("labels",): False,
        ("records", "labels"): True,
    }
    for number, (names, expected) in enumerate(cases.items()):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            for name in names:
                file[name] = np.zeros((2, 3, 3), "u1")
        assert Dlio().claims(Probe(tmp_path / f"{number}.h5")) == expected
