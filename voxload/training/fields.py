"""Fields: what a run reads of each sample; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxload.catalog import Catalog
from voxload.errors import UsageError
from voxload.training.plan import UNET3D, TrainingPlan

VOLUME, LABELS = "x", "labels"
"""Names of the fields."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What the loaders of a run give with each batch: the volumes, then either labels or targets."""

    volumes: Mapping[str, str] | None
    """Field name to dataset, as VolumeDataset takes them; None for the only dataset there is."""
    targets: tuple[str, ...] = ()
    """Columns of the catalogue."""

    @classmethod
    def of(cls, plan: TrainingPlan, catalog: Catalog) -> Fields:
        """Return what `plan` needs of a catalogue.

        Raises UsageError when it has no target, or when it is open which dataset is the volume.
        """
        if plan.model == UNET3D:
            return cls({VOLUME: plan.dataset or _other(catalog, plan.labels), LABELS: plan.labels})
        targets = plan.targets or catalog.target_names
        if not targets:
            raise UsageError(f"catalogue {plan.catalog}", found="no target column", expected="something to predict")
        return cls({VOLUME: plan.dataset} if plan.dataset else None, targets)


def _other(catalog: Catalog, labels: str) -> str:
    """Return the one dataset that is not the labels."""
    others = [name for name in catalog.datasets if name != labels]
    if len(others) != 1:
        raise UsageError(
            "dataset",
            found=f"{others} besides the labels {labels!r}",
            expected="one, or to know which",
            remedy="say --dataset NAME",
        )
    return others[0]
