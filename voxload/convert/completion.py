"""Completion: which planned volumes are there already, and what may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from voxload.atomic import remove
from voxload.convert.cataloguing import complete_volumes
from voxload.convert.manifest import Manifest, read_manifest, stored_bytes
from voxload.convert.options import StoredFormat
from voxload.convert.store import VolumePlan
from voxload.convert.writer import writing
from voxload.errors import UsageError


def is_complete(volume: VolumePlan) -> bool:
    """Tell whether the volume's final name holds this very conversion, whole."""
    if not volume.final.exists():
        return False
    before = read_manifest(volume.final)
    return (
        before is not None
        and before.is_same_conversion(volume.manifest)
        and before.stored_bytes == stored_bytes(volume.final, before.dataset)
    )


def check_replaceable(volume: VolumePlan) -> None:
    """Refuse to replace what is not an older conversion of the same file."""
    for stored in StoredFormat:
        path = volume.final.with_name(f"{volume.final.stem}{stored.suffix}")
        if not path.exists():
            continue
        before = read_manifest(path)
        if before is None:
            found = "something that voxload convert did not make, or that is damaged"
        elif not _paths(before) & _paths(volume.manifest):
            found = f"the conversion of another file, {before.parts[0].files[0].path}"
        elif path != volume.final:
            found = f"the same sample in {stored.value}"
        else:
            continue
        raise UsageError(
            f"{path}", found=found, expected="nothing there", remedy="move it away or convert into another folder"
        )


def remove_outdated(folder: Path, planned: Sequence[VolumePlan]) -> None:
    """Remove volumes whose samples are all in the planned ones now, cut or packed in another way."""
    finals = {volume.final for volume in planned}
    rows = {(member.sample, volume.manifest.dataset) for volume in planned for member in volume.manifest.members}
    cubes = {key for volume in planned for key in _cubes(volume.manifest)}
    with writing(folder):
        for path, manifest in complete_volumes(folder):
            if path in finals:
                continue
            mine = {(member.sample, manifest.dataset) for member in manifest.members}
            if mine & rows or _cubes(manifest) & cubes:
                remove(path)


def _paths(manifest: Manifest) -> set[str]:
    return {file.path for part in manifest.parts for file in part.files}


def _cubes(manifest: Manifest) -> set[tuple[str, str, str]]:
    """Return which raw cubes a volume was made of."""
    return {(part.files[0].path, part.dataset, part.part) for part in manifest.parts}
