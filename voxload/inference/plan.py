"""InferencePlan: all that a run of predictions is told, as plain values that travel to its ranks as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from voxload.errors import DataError, UsageError
from voxload.files.regular import parse_json
from voxload.launch.devices import HOST, check_device


@dataclass(frozen=True, slots=True)
class InferencePlan:
    """Predictions of one network for the samples of one catalogue."""

    catalog: str
    """Path of the catalogue."""
    checkpoint: str
    """File that a training run wrote, or the folder that holds it."""
    output: str
    """Folder for the predictions."""
    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks along (d, h, w); may differ from those of the training."""
    batch_size: int = 1
    """Samples of one sample group that are predicted together, at most."""
    dataset: str = ""
    """Dataset to predict from; empty for the one that was trained on, or the only one."""
    labels: str = ""
    """Dataset with a class for each voxel to compare with; empty for the one that was trained on, where it is there."""
    allow_outside: bool = False
    """Whether the catalogue's paths may lead out of its folder."""
    device: str = HOST
    """What each rank computes on, one of `voxload.launch.devices.DEVICES`."""

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.batch_size < 1:
            raise UsageError("batch size", found=str(self.batch_size), expected="1 or more")

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> InferencePlan:
        """Return the plan that `to_json` wrote; raises DataError on anything else."""
        try:
            values: dict[str, Any] = parse_json(text)
            return cls(**{**values, "spatial": tuple(values["spatial"])})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                "inference plan", found=str(error), expected="JSON as InferencePlan.to_json writes"
            ) from error
