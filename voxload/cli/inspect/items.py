"""Items: what a data set makes of a stored volume, which may be an image of several resolutions or a series in time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from voxload.data.lists.reading import lead_at, untold_axes
from voxload.readers import Location, VolumeInfo
from voxload.readers.cfpacking import Packing, decoded_type


@dataclass(frozen=True, slots=True)
class Items:
    """What the items of a data set of one stored volume are."""

    stored: VolumeInfo
    """What is known of the volume."""
    location: Location
    """Where the first item lies in it."""
    decode: str | None = None
    """What is done about CF attributes, as a data set is told it."""

    @classmethod
    def of(cls, stored: VolumeInfo, location: Location, decode: str | None) -> Items:
        """Return what the items of a volume are; `location` may be a window of it."""
        axes = untold_axes(stored, location) or location.axes or ""
        return cls(stored, replace(location, lead=lead_at(axes, 0, None)), decode)

    @property
    def count(self) -> int:
        """How many there are, where each time step is one."""
        return 1 if self.location.lead is None else self.stored.samples * self.stored.steps

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents (C, D, H, W) of an item."""
        channels = self.stored.shape[0] if self.location.lead is None else self.stored.lead[2]
        return (channels, *self.stored.spatial)

    @property
    def packing(self) -> tuple[Packing | None, ...]:
        """What stored numbers stand for; empty where they stay what they are."""
        return () if self.decode == "stored" else self.stored.packing

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an item."""
        native = self.stored.native_dtype
        return np.dtype(decoded_type(native.name)) if self.packing else native

    def options(self) -> dict[str, Any] | None:
        """Return what `VolumeDataset` has to be told beside the path; None where it does not take the path."""
        place = self.location
        if place.window is not None or place.shape is not None:
            return None
        told = {
            "fields": {"x": place.dataset} if place.dataset else None,
            "axes": place.axes or (self.stored.axes if place.lead is not None else None),
            "level": place.level,
            "decode": self.decode,
            "allow_outside": True if place.within is None else None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def figures(self) -> dict[str, Any]:
        """Return the same as plain values."""
        levels = self.stored.levels
        return {
            "items": self.count,
            "array_samples": self.stored.samples,
            "array_steps": self.stored.steps,
            "item_dtype": self.dtype.str,
            "packing": [None if one is None else asdict(one) for one in self.packing],
            "options": self.options(),
            "level": (self.location.level or 0) if levels else None,
            "levels": list(levels),
        }

    def rows(self) -> dict[str, str]:
        """Return what is unlike a plain volume, for a table."""
        rows = dict[str, str]()
        if self.stored.levels:
            level, names = self.location.level or 0, self.stored.levels
            rows["level"] = f"{level} of 0 to {len(names) - 1} (array {names[level]}); --level chooses, 0 the finest"
        if self.location.lead is not None:
            rows["samples"] = self._samples()
        if self.packing:
            rows["unpacked"] = f"{self.dtype.name}: {'; '.join(map(_said, self.packing))}"
        return rows

    def _samples(self) -> str:
        samples, steps = self.stored.samples, self.stored.steps
        if "T" not in self.stored.axes:
            return f"{samples} in one array (axis N)"
        if "N" not in self.stored.axes:
            return f"{steps}, the time steps (axis T); a Window takes several"
        return f"{samples * steps}: {samples} (axis N) of {steps} time steps each (axis T); a Window takes several"


def python_call(path: str, options: dict[str, Any]) -> str:
    """Return the call of a data set as Python has it."""
    words = [json.dumps(path, ensure_ascii=False)]
    for name, value in options.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | dict) else repr(value)
        words.append(f"{name}={text}")
    return f"voxload.VolumeDataset({', '.join(words)})"


def _said(packing: Packing | None) -> str:
    """Return what stored numbers stand for as people write it."""
    if packing is None:
        return "as stored"
    scaled = f" * {packing.scale:.6g}" if packing.scale != 1 else ""
    moved = f" {'-' if packing.offset < 0 else '+'} {abs(packing.offset):.6g}" if packing.offset else ""
    wraps = ", integers of the other sign" if packing.wraps else ""
    fills = f", NaN for {', '.join(f'{fill:.6g}' for fill in packing.fills)}" if packing.fills else ""
    return f"stored{scaled}{moved}{wraps}{fills}"
