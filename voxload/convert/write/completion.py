"""Completion: which planned volumes are there already, and what may be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from voxload.convert.manifest import Manifest, read_manifest, stored_bytes
from voxload.convert.options import StoredFormat
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.write.catalogue import complete_volumes
from voxload.convert.write.writer import writing
from voxload.errors import UsageError
from voxload.files.atomic import remove_withdrawn, withdraw


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


def outdated(folder: Path, planned: Sequence[VolumePlan]) -> list[Path]:
    """Return volumes of the folder in whose place planned ones come: made of the same cubes, cut or packed otherwise.

    Raises
    ------
    UsageError
        When one holds a planned sample that was made of another source, or together with samples that are not planned:
        it can neither stay nor go.
    """
    finals = {volume.final for volume in planned}
    rows = {(member.sample, volume.manifest.dataset) for volume in planned for member in volume.manifest.members}
    cubes = {key for volume in planned for key in _cubes(volume.manifest)}
    found = []
    for path, manifest in complete_volumes(folder):
        if path in finals:
            continue
        shared = {(member.sample, manifest.dataset) for member in manifest.members} & rows
        mine = _cubes(manifest)
        if mine <= cubes:
            found.append(path)
        elif shared or mine & cubes:
            file, dataset, _ = min(mine - cubes)
            other = f"{dataset!r} of {file}"
            raise UsageError(
                f"{path}",
                found=f"sample {min(shared)[0]!r}, and others of {file}" if shared else f"cubes of {other}, too",
                expected="samples of this conversion alone",
                remedy="convert all of them again, move it away, or convert into another folder",
            )
    return found


def check_same_targets(folder: Path, planned: Sequence[VolumePlan]) -> None:
    """Refuse samples whose targets are not those of the samples that the folder keeps: they share one catalogue.

    Raises
    ------
    UsageError
        That names a sample of either kind. Nothing was written then, unless by a version that did not look.
    """
    gone = {volume.final for volume in planned} | set(outdated(folder, planned))
    kept = [(path, manifest) for path, manifest in complete_volumes(folder) if path not in gone]
    every = [*kept, *((volume.final, volume.manifest) for volume in planned)]
    found = [(path, member) for path, manifest in every for member in manifest.members]
    for path, member in found:
        first, other = found[0]
        if set(member.targets) != set(other.targets):
            raise UsageError(
                f"{folder}",
                found=f"sample {other.sample!r} with targets {sorted(other.targets)} ({first.name}), and sample "
                f"{member.sample!r} with {sorted(member.targets)} ({path.name})",
                expected="samples of the same targets in one folder",
                remedy="convert into another folder, give all the same by --targets, or move away what is there",
            )


def remove_outdated(folder: Path, planned: Sequence[VolumePlan]) -> None:
    """Remove volumes in whose place planned ones have come, and what killed runs left of those that they removed."""
    with writing(folder):
        for path in outdated(folder, planned):
            withdraw(path)
        for each in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            remove_withdrawn(each)


def _paths(manifest: Manifest) -> set[str]:
    return {file.path for part in manifest.parts for file in part.files}


def _cubes(manifest: Manifest) -> set[tuple[str, str, str]]:
    """Return which raw cubes a volume was made of."""
    return {cube for part in manifest.parts for cube in part.cubes}
