"""XarrayReader: boxes of one variable, as xarray gives them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from voxload.errors import DataError, UsageError
from voxload.geometry import Box
from voxload.readers.axes import declared_or_usual, resolve_axes
from voxload.readers.faults import translated
from voxload.readers.protocol import (
    Location,
    Missing,
    ReadCost,
    Volume,
    VolumeInfo,
    check_box,
    check_request,
    check_volume,
    closed,
    copy_cast,
)


class XarrayReader:
    """Reads boxes of a variable of xarray's; see the Reader contract.

    A box is an ``isel`` of the variable whose values are then computed: what xarray or dask keeps, locks and decodes is
    theirs to say, and several threads wait for one another where xarray's backend has a lock.

    Parameters
    ----------
    location
        Name of the object and of the variable.
    variable
        The variable.
    missing
        What to do about voxels that were never written.

    Raises
    ------
    UsageError
        Axes without names, elements that are no numbers, and voxels that were never written being errors: xarray does
        not tell them from others.
    """

    def __init__(self, location: Location, variable: Any, missing: Missing) -> None:
        subject = str(location)
        if missing is not Missing.FILL:
            raise UsageError(
                subject,
                found="an object of xarray's, which does not tell voxels that were never written from others",
                expected="missing='fill', or the path of what is stored",
                remedy="say missing='fill' if xarray's values are what is wanted",
            )
        if location.checksums is not None:
            raise UsageError(subject, found="checksums of an object of xarray's", expected="those of stored volumes")
        names = tuple(map(str, variable.dims))
        declared = None if location.axes else declared_or_usual(subject, names)
        self._order = resolve_axes(subject, ndim=len(names), given=location.axes, declared=declared, has_lead=True)
        self._variable, self._dims = variable, tuple(variable.dims)
        self._is_closed = False
        samples, steps, _ = self._order.lead(variable.shape)
        self._info = VolumeInfo(
            location=location,
            format="xarray",
            axes=self._order.axes,
            shape=self._order.to_volume(variable.shape, 1),
            dtype=np.dtype(variable.dtype),
            chunks=None,
            shards=None,
            codecs=(),
            samples=samples,
            steps=steps,
            route="xarray",
        )
        check_volume(self._info)

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return the bytes of the box; what xarray reads for it is not known."""
        check_box(self._info, box)
        size = self._order.stored_box(box, self._info.lead).size * self._info.dtype.itemsize
        return ReadCost(0, size, size)

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`, by one question to xarray."""
        check_request(self._info, box, out)
        if self._is_closed:
            raise closed(self._info)
        stored = self._order.stored_box(box, self._info.lead)
        view = self._order.stored_view(out, box, self._info.lead)
        if not stored.size:
            return
        subject = f"{self._info.location}, box {box}"
        with translated(subject):
            wanted = self._variable.isel(dict(zip(self._dims, stored.slices, strict=True)))
            values = np.asarray(wanted.compute(**_how(wanted)).values)
        if values.shape != view.shape or values.dtype != self._info.dtype:
            raise DataError(
                subject,
                found=f"{values.dtype} of shape {values.shape} from xarray",
                expected=f"{self._info.dtype} of shape {view.shape}",
            )
        copy_cast(view, values)

    def close(self) -> None:
        """Let go of the variable; the object stays open, for it is its owner's."""
        self._is_closed, self._variable = True, None


def _how(wanted: Any) -> dict[str, str]:
    """Return how dask computes: in the thread that asks, for that is one of several, unless the user says otherwise.

    By default it would begin as many threads as there are cores for each thread that asks.
    """
    base: Any = sys.modules.get("dask.base")  # whoever has an array of dask's has imported it
    is_dasks = wanted.chunks is not None and base is not None
    return {"scheduler": "synchronous"} if is_dasks and base.get_scheduler() is None else {}
