"""Wrapped data sets: what torch's Subset and ConcatDataset make of VolumeDatasets, as one VolumeDataset.

torch's wrappers hand out items one by one. What they say, which samples in which order, a data set of volumes can do by
itself, and then threads, tiers, groups and figures are those of any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from voxload.data.dataset import VolumeDataset
from voxload.data.lists.selection import joined
from voxload.errors import UsageError


def unwrapped(dataset: Any) -> Any:
    """Return the VolumeDataset that reads what torch's own wrappers would; others as they are.

    Warns where data sets of volumes are wrapped in a way that only torch can follow: they are then read as torch does
    it, item by item, without read-ahead by threads, tiers, order over sample groups and figures.
    """
    if type(dataset) not in (Subset, ConcatDataset):
        return dataset
    found, reason = _whole(dataset)
    if found is not None:
        return found
    if reason:
        warnings.warn(
            f"{type(dataset).__name__} of {reason}: it is loaded as torch's loader does it, without reader threads, "
            "cache, order over sample groups and stats(); make one VolumeDataset of it, or choose by data.subset()",
            stacklevel=3,
        )
    return dataset


def _whole(dataset: Any) -> tuple[VolumeDataset | None, str]:
    """Return a wrapper's samples as one data set; or None, and why not where volumes are in it."""
    if type(dataset) is VolumeDataset:
        return dataset, ""
    if type(dataset) is Subset:
        inner, reason = _whole(dataset.dataset)
        if inner is None:
            return None, reason
        _check_fixed(inner, "Subset")
        return (inner.subset(dataset.indices), "") if len(dataset.indices) else (None, "no sample")
    if type(dataset) is ConcatDataset:
        parts = [_whole(one) for one in dataset.datasets]
        reasons = [reason for _, reason in parts if reason]
        volumes = [inner for inner, _ in parts if inner is not None]
        if not volumes or reasons or len(volumes) < len(parts):
            return None, reasons[0] if reasons else "other data sets than of volumes" if volumes else ""
        for one in volumes:
            _check_fixed(one, "ConcatDataset")
        other = next((name for name in _DECISIVE if not _agree(volumes, name)), None)
        if other is not None:
            return None, f"data sets of unequal {other}"
        return volumes[0].with_samples(joined([one.samples for one in volumes])), ""
    if isinstance(dataset, VolumeDataset):
        return None, f"a {type(dataset).__name__} with ways of its own"
    return None, ""


def _check_fixed(data: VolumeDataset, kind: str) -> None:
    """Refuse to number the samples of a data set that becomes longer once for all."""
    if data.following is not None:
        raise UsageError(
            f"{kind} of a VolumeDataset that follows its catalogue",
            found="indices that are given out once",
            expected="samples that may become more",
            remedy="choose by data.subset(where=...), or leave follow out",
        )


_DECISIVE = (
    "field_names",
    "target_names",
    "columns",
    "coarse",
    "job",
    "halo",
    "boundary",
    "missing",
    "decode",
    "augment",
    "parts",
    "item_transform",
)
"""Attributes of which data sets must agree to be one."""


def _agree(volumes: Sequence[VolumeDataset], name: str) -> bool:
    """Tell whether an attribute is the same of all; targets stand in the files of all, or in those of none."""
    first = volumes[0]
    if name == "target_names" and any(
        one.samples.targets_in_file != first.samples.targets_in_file for one in volumes[1:]
    ):
        return False
    if name == "decode":
        return all(one.volumes.decodes == first.volumes.decodes for one in volumes)
    if name == "augment":
        return all(repr(one.augment) == repr(first.augment) for one in volumes)
    return all(getattr(one, name) == getattr(first, name) for one in volumes)
