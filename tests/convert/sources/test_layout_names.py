"""Names of dimensions beside the layout of a format that fixes its axes: a contradiction is no guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.laws.source import check_source
from voxload.convert.sources import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.registry import find_format, open_sources
from voxload.errors import UsageError

PARAMETERS = np.linspace(0, 1, 4)
WELL = {"sample_varying": True, "time_varying": True, "dim_varying": [True] * 3}


@dataclass(frozen=True)
class Layout:
    """A file of one format, and names that its dataset may have."""

    dataset: str
    shape: tuple[int, ...]
    fits: tuple[str, ...]
    """Names that say what the layout says."""
    contradicts: tuple[tuple[str, ...], ...]
    """Names that say otherwise."""
    axes: str
    """What the caller may say."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    root: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path, names: tuple[str, ...]) -> Path:
        """Write the file, with these labels."""
        with h5py.File(path, "w") as file:
            file.attrs.update(self.root)
            item = file.create_dataset(
                self.dataset, data=np.arange(np.prod(self.shape), dtype="<i2").reshape(self.shape)
            )
            item.attrs.update(self.own)
            for name, values in self.beside.items():
                file[name] = values
            for axis, name in enumerate(names):
                item.dims[axis].label = name
        return path


LAYOUTS = {
    "ExaLearn cosmoUniverse": Layout(
        "full",
        (5, 5, 5, 2),
        ("z", "y", "x", "c"),
        (("x", "y", "z", "c"), ("c", "z", "y", "x"), ("z", "y", "x", "time")),
        "DHWC",
        {"unitPar": PARAMETERS},
    ),
    "MLPerf CosmoFlow split HDF5": Layout(
        "x", (5, 5, 5, 4), ("d", "h", "w", "channel"), (("w", "h", "d", "c"), ("t", "", "", "")), "DHWC",
        {"y": PARAMETERS},
    ),
    "NoPFS split HDF5": Layout(
        "split", (2, 5, 5, 5), ("c", "d", "h", "w"), (("d", "h", "w", "c"), ("c", "x", "y", "z")), "CDHW",
        {"unitPar": PARAMETERS},
    ),
    "LBANN split HDF5": Layout(
        "full", (2, 5, 5, 5), ("c", "x", "y", "z"), (("c", "z", "y", "x"), ("time", "", "", "")), "CWHD",
        {"unitPar": PARAMETERS},
    ),
    "multiScale_tryG": Layout(
        "3Dmap", (2, 5, 5, 5, 3), ("sample", "z", "y", "x", "c"),
        (("time", "z", "y", "x", "c"), ("n", "c", "z", "y", "x")),
        "DHWC", {"unitPar": np.stack([PARAMETERS] * 2)},
    ),
    "Nyx HDF5 (gimlet)": Layout(
        "native_fields/density", (3, 4, 5), ("x", "y", "z"), (("z", "y", "x"), ("time", "lat", "lon"), ("", "x", "")),
        "DHW", root={"format": "nyx-lyaf"},
    ),
    "The Well": Layout(
        "t0_fields/density", (2, 3, 4, 5, 6), ("sample", "time", "x", "y", "z"),
        (("time", "sample", "x", "y", "z"), ("n", "t", "z", "y", "x"), ("n", "t", "c", "", "")),
        "DHW", root={"n_spatial_dims": 3, "n_trajectories": 2}, own=WELL,
    ),
    "DLIO synthetic HDF5": Layout(
        "records_0", (2, 4, 5, 6), ("sample", "z", "y", "x"), (("time", "z", "y", "x"), ("n", "x", "y", "z")), "DHW",
        {"labels": [0, 1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_names_do_not_change_a_layout(tmp_path: Path, name: str) -> None:
    """Those that say the same, and those that say nothing, leave the voxels where they are; others are an error."""
    layout = LAYOUTS[name]
    silent = tuple(f"phony_dim_{axis}" for axis in range(len(layout.shape)))
    plain = layout.write(tmp_path / "plain.h5", ())
    known = find_format(Probe(plain))
    assert known is not None
    assert known.name == name
    before = [source.describe() for source in open_sources(plain)]
    for number, names in enumerate((layout.fits, silent)):
        path = layout.write(tmp_path / f"{number}.h5", names)
        found = open_sources(path)
        assert [one.describe().order for one in found] == [cube.order for cube in before]
        with h5py.File(path) as file:
            stored = file[layout.dataset][()]
        cube = found[-1].describe()
        last = stored[(-1,) * (stored.ndim - len(cube.order.axes))]
        letters = [axis for axis in "CDHW" if axis in cube.order.axes]
        turned = last.transpose([cube.order.axes.index(axis) for axis in letters]).reshape(cube.volume_shape)
        check_source(found[-1], turned)
    for names in layout.contradicts:
        path = layout.write(tmp_path / "other.h5", names)
        with pytest.raises(UsageError, match=r"found dimensions \(.*expected the axes .*--axes"):
            open_sources(path)
        assert [one.describe().order.axes for one in open_sources(path, Hints(axes=layout.axes))] == [
            cube.order.axes for cube in before
        ]
