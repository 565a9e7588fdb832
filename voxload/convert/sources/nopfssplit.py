"""NopfsSplit: universes of the CosmoFlow simulations as the script of NoPFS splits them.

A cube a file: ``split`` and ``unitPar``. The script moves the redshifts to the front, (C, D, H, W), unless it is told
not to, (D, H, W, C); nothing but the extents says which. Source: N. Dryden's splitter for NoPFS.
"""

from __future__ import annotations

from dataclasses import replace

from voxload.convert.sources.cubeaxes import cube_axes, has_channels_first, has_channels_last
from voxload.convert.sources.hdf5cube import Hdf5Cube, describe_dataset
from voxload.convert.sources.hdf5targets import read_targets
from voxload.convert.sources.hdf5tree import extents_of, hdf5_tree
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.volumenames import chosen
from voxload.errors import UsageError

_DATASET, _TARGETS = "split", "unitPar"


class NopfsSplit:
    """Cubes that the script of NoPFS cut out of raw universes."""

    name = "NoPFS split HDF5"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether an HDF5 file holds ``split``, of four axes, and ``unitPar``."""
        found = extents_of(probe, _DATASET, _TARGETS)
        return bool(found) and len(found[0]) == 4

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube; raises UsageError when its extents do not say which axis holds the redshifts."""
        chosen(f"{probe.path}", [_DATASET], hints)
        stored = hdf5_tree(probe).datasets[_DATASET]
        subject = f"{probe.path}, dataset {_DATASET!r}"
        order = cube_axes(subject, stored.shape, given=hints.axes or _axes(subject, stored.shape))
        cube = describe_dataset(probe.path, _DATASET, stored, order=order)
        return (Hdf5Cube(_DATASET, replace(cube, targets=read_targets(probe.path, _TARGETS)), hints),)


def _axes(subject: str, shape: tuple[int, ...]) -> str:
    if has_channels_first(shape):
        return "CDHW"
    if has_channels_last(shape):
        return "DHWC"
    raise UsageError(
        subject,
        found=f"shape {shape}",
        expected="(redshifts, N, N, N) or (N, N, N, redshifts), and other redshifts than N",
        remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
    )
