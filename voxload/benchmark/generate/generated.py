"""Generated: the file that says what a generated data set is, and what its blocks must hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from voxload.benchmark.generate.plan import DatasetPlan
from voxload.benchmark.generate.values import Values, check_block
from voxload.convert.write.writer import writing
from voxload.errors import DataError, NotFoundError
from voxload.files.atomic import replacing
from voxload.files.regular import parse_json, read_text
from voxload.geometry import Boundary, Box
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume

PLAN_NAME = "voxload-bench.json"
"""File beside the catalogue."""
SCHEMA = "voxload-bench-data/1"
"""Name and version of the format; the version changes when the same plan gives other voxels."""


def write_plan(plan: DatasetPlan, folder: Path) -> None:
    """Write what `read_plan` reads, whole or not at all; raises StorageError when the folder takes no file."""
    with writing(folder / PLAN_NAME), replacing(folder / PLAN_NAME) as temporary:
        temporary.write_text(json.dumps({"schema": SCHEMA} | plan.to_dict(), indent=2) + "\n", encoding="utf-8")


def read_plan(folder: Path) -> DatasetPlan | None:
    """Return the plan of the data set in a folder; None when there is none.

    Raises DataError when the file is damaged or of another version.
    """
    path = folder / PLAN_NAME
    if not path.is_file():
        return None
    with translated(f"{path}"):
        values = parse_json(read_text(path))
    schema = values.pop("schema", None) if isinstance(values, dict) else None
    if schema != SCHEMA:
        raise DataError(
            f"{path}",
            found=f"schema {schema!r}",
            expected=repr(SCHEMA),
            remedy="read it with the version of voxload that wrote it, or generate anew",
        )
    return DatasetPlan.from_dict(values, f"{path}")


@dataclass(frozen=True, slots=True)
class Truth:
    """What the blocks of a generated data set must hold; safe to share between threads."""

    plan: DatasetPlan
    """What was generated."""
    values: Values
    """The voxels."""

    @classmethod
    def of(cls, location: str | Path) -> Truth:
        """Return the truth of a data set, named by its folder or its catalogue.

        Raises NotFoundError when voxload did not generate it, DataError when its plan is damaged.
        """
        path = Path(location)
        plan = read_plan(path if path.is_dir() else path.parent)
        if plan is None:
            raise NotFoundError(
                f"{location}",
                found=f"no {PLAN_NAME}",
                expected="a data set that voxload bench generate wrote",
                remedy="generate one, or do not verify",
            )
        return cls(plan, plan.values)

    def check(self, sample: str, box: Box, block: Volume, *, boundary: str | Boundary = Boundary.ZERO) -> str | None:
        """Return a sentence about the first wrong voxel of a block, or None when it is right.

        Parameters
        ----------
        sample
            Id of the sample.
        box
            The voxels of the block, halo included.
        block
            What was delivered, ``(C, *box.shape)``, in the stored type.
        boundary
            What lies outside a sample.

        Raises
        ------
        DataError
            When the plan has no such sample.
        """
        number = self.plan.number(sample)
        spatial = self.plan.spatial
        if len(block) != self.plan.shape[0]:
            return f"sample {number}: {len(block)} channels in place of {self.plan.shape[0]}"
        return check_block(self.values, block, sample=number, box=box, spatial=spatial, boundary=boundary)
