"""Finding: the raw cubes under a path, and the samples they belong to. No voxel is read."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from voxload.convert.manifest import SourceFile, Variable
from voxload.convert.plan.variables import Variables, without_variable
from voxload.convert.sources import Source
from voxload.convert.sources.medicine.dicom import DicomSeries
from voxload.convert.sources.medicine.series import is_dicom
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.names import safe_dataset, safe_name
from voxload.files.regular import check_regular
from voxload.readers.faults import translated
from voxload.readers.foreign import foreign_error, member_error
from voxload.readers.storage.traversal import check_links, check_within

_SUFFIX = re.compile(r"(\.nii)?\.[A-Za-z][A-Za-z0-9]*$")
_PROMISING = frozenset(
    {".h5", ".hdf5", ".npy", ".npz", ".nii", ".fits", ".nrrd", ".mha", ".mhd", ".dcm", ".DCM", ".asdf", ".tfrecord"}
)
"""Suffixes that promise a format: a file with one that is not of that format is damaged, not foreign."""
_ZARR_METADATA = ("zarr.json", ".zgroup", ".zarray")
LeftOut = Callable[[Path], bool]
"""Tells whether a file that lies in a folder of cubes is none, though it could be taken for one."""
Open = Callable[[Path], tuple[Source, ...]]
"""Returns the raw cubes in a file, none when it is of no known format."""
_NUMBER = re.compile(r"(\d+)$")
_COARSER = ", a coarser level of an image"
"""What stands behind the name of an array that is no cube because it is another one at a coarser resolution."""


@dataclass(frozen=True, slots=True)
class FoundCube:
    """One raw cube, and the sample that it is of."""

    sample: str
    """Sample id."""
    cube: RawCube
    """What it says of itself."""
    source: Source
    """Where it is read."""
    files: tuple[SourceFile, ...]
    """State of its files."""
    variable: str = ""
    """Which of the variables that the caller named it is; empty where it is none."""
    variables: tuple[Variable, ...] = ()
    """What its channels are made of, where they are variables."""

    @property
    def number(self) -> int | None:
        """Number of the sample in its file, or at the end of its folder's or file's name; None where there is none."""
        if self.cube.part:
            return int(self.cube.part) if self.cube.part.isdigit() else None
        names = [Path(self.files[0].name).parent.name, without_suffix(self.files[0].name)]
        if self.variable:
            names.append(self.sample)  # the end of the file's name may be the variable
        for name in names:
            found = _NUMBER.search(name)
            if found:
                return int(found[1])
        return None


def find_cubes(
    src: Path,
    dst: Path,
    open_: Open,
    *,
    left_out: LeftOut,
    allow_outside: bool = False,
    variables: Sequence[str] = (),
) -> tuple[list[FoundCube], list[str]]:
    """Look at every file under `src`, or at the file `src`; return its cubes by sample id, and what is none.

    A file that belongs to another one, such as the data file of a header, is not looked at by itself. Cubes that are
    one of the `variables` are called so, and samples whose files have these names by what else their names say. Files
    that are to be `left_out` are none, unless the caller named one.

    Raises
    ------
    NotFoundError
        When there is no such path, or no raw cube under it.
    UsageError
        When a single file is of no known format, hints do not fit, two cubes would be one volume, or a file might be
        two of the variables.
    DataError
        When a file is damaged.
    """
    if not src.exists():
        raise NotFoundError(f"{src}", found="no such file or folder", remedy="check the path")
    check_regular(src)
    root = src if src.is_dir() and not _is_zarr(src) else src.parent
    found: dict[tuple[str, str], FoundCube] = {}
    ignored: list[str] = []
    described: set[Path] = set()
    coarser: dict[str, None] = {}
    for path in _files(src, dst):
        name = path.relative_to(root).as_posix()
        if path.resolve() in described:
            continue
        sources = () if path != src and left_out(path) else open_(path)
        if not sources:
            ignored.append(name)
            continue
        is_alone = bool(variables) and len({source.describe().dataset for source in sources}) == 1
        naming = _Naming(Variables(tuple(variables)), is_alone)
        for source in sources:
            cube = _cube(name, source, root, naming)
            if not allow_outside:
                _check_within(cube.cube, src)
            described.update(companion.resolve() for companion in cube.cube.companions)
            coarser |= {f"{name}/{level}{_COARSER}": None for level in cube.cube.coarser}
            before = found.setdefault((cube.sample, cube.cube.dataset), cube)
            if before is not cube:
                raise UsageError(
                    f"sample id {cube.sample!r}, volume {cube.cube.dataset!r}",
                    found=f"two files for it, {before.files[0].name} and {name}",
                    expected="one",
                    remedy="rename one, or convert them into two folders",
                )
    _check_series(list(found.values()))
    ignored = [name for name in ignored if (root / name).resolve() not in described]
    for name in ignored:
        _check_foreign(root / name, is_named=root / name == src)
    if not found:
        raise NotFoundError(
            f"{src}",
            found=f"no raw cube among {len(ignored)} files",
            expected="a format that docs/reference/formats.md lists, or headerless binary",
            remedy="describe headerless files with --shape, --dtype and --order",
        )
    return [found[key] for key in sorted(found)], sorted(ignored + list(coarser))


def ignored_rows(ignored: Sequence[str]) -> dict[str, str]:
    """Return what `find_cubes` says is no cube, counted for people: files, and coarser levels of images."""
    levels = [name.removesuffix(_COARSER) for name in ignored if name.endswith(_COARSER)]
    files = [name for name in ignored if not name.endswith(_COARSER)]
    rows = {"no raw cubes": f"{len(files)} files, such as {files[0]}"} if files else {}
    return rows | ({"coarser levels of images": f"{len(levels)}, such as {levels[0]}"} if levels else {})


def _check_series(found: Sequence[FoundCube]) -> None:
    """Refuse a DICOM series in two folders: each would be a volume of a part of its slices, or the same one twice."""
    first: dict[str, FoundCube] = {}
    for cube in found:
        if isinstance(cube.source, DicomSeries) and first.setdefault(cube.source.uid, cube) is not cube:
            raise UsageError(
                f"series {cube.source.uid}",
                found=f"slices in two folders, that of {first[cube.source.uid].files[0].name} and that of "
                f"{cube.files[0].name}",
                expected="one",
                remedy="put all of its slices into one folder, and copies out of the way",
            )


def without_suffix(name: str) -> str:
    """Return a source's relative path without suffix, which is its sample's id, with ``_`` for ``/``.

    >>> without_suffix("21688988/universe_7.hdf5"), without_suffix("density_z=0.5"), without_suffix("ct/case.nii.gz")
    ('21688988/universe_7', 'density_z=0.5', 'ct/case')
    """
    return _SUFFIX.sub("", name)


@dataclass(frozen=True, slots=True)
class _Naming:
    """What is known of a file's cubes before they are named."""

    variables: Variables
    """What the caller calls some cubes."""
    is_alone: bool
    """Whether all cubes of the file have one name."""


def _cube(name: str, source: Source, root: Path, naming: _Naming) -> FoundCube:
    cube, path = source.describe(), without_suffix(name)
    variable = naming.variables.of_cube(path, cube.dataset, is_alone=naming.is_alone)
    below = path
    if cube.sample:
        below = posixpath.normpath(posixpath.join(posixpath.dirname(name), cube.sample))
        while below.startswith("../"):  # the folder that is converted lies below the sample's
            below = below.removeprefix("../")
    if variable and naming.is_alone:
        below = without_variable(below, variable) or "."
    # The folder that is converted is a sample itself where nothing else names it.
    sample = root.resolve().name if below in (".", "..") else below.replace("/", "_")
    with translated(f"{cube.path}"):
        files = tuple(SourceFile.of(path, _relative(path, root)) for path in (cube.path, *cube.companions))
    # Here every name of every format becomes one: what the file calls them may lead anywhere, or be no text.
    named = replace(cube, dataset=safe_dataset(variable or cube.dataset))
    sample = safe_name(f"{sample}_{cube.part}" if cube.part else sample)
    return FoundCube(sample, named, source, files, variable)


def _check_within(cube: RawCube, src: Path) -> None:
    """Refuse a cube of which a file lies outside of what is converted: a stranger's folder may name the user's files.

    The path that the caller named may itself be a link.
    """
    folder = os.fspath(src if src.is_dir() else src.parent)
    for path in (cube.path, *cube.companions):
        if path != src:
            check_within(os.fspath(path), folder, subject=f"{cube.path}")
    if cube.path.is_dir():
        check_links(os.fspath(cube.path), folder, subject=f"{cube.path}")


def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in _ZARR_METADATA)


def _files(src: Path, dst: Path) -> Iterator[Path]:
    """Yield files and Zarr folders under `src` in a fixed order; hidden ones and the destination are left out."""
    if not src.is_dir() or _is_zarr(src):
        yield src
        return
    target = dst.resolve()
    for folder, folders, names in os.walk(src):
        here = Path(folder)
        visible = sorted(name for name in folders if not name.startswith(".") and (here / name).resolve() != target)
        folders[:] = [name for name in visible if not _is_zarr(here / name)]
        arrays = set(visible) - set(folders)
        for name in sorted([*names, *arrays]):
            if not name.startswith(".") and (name in arrays or (here / name).is_file()):
                yield here / name


def _check_foreign(path: Path, *, is_named: bool) -> None:
    """Refuse a file of no known format that the caller named, or that is known for what no conversion reads.

    That is one whose suffix promises another format, and one whose format is known by name.
    """
    known = foreign_error(f"{path}") or member_error(f"{path}")
    if known is not None:
        raise known
    if is_dicom(Probe(path)):
        if is_named:
            raise UsageError(f"{path}", found="DICOM without an image", expected="a slice of a series")
        return
    if path.suffix in _PROMISING:
        raise DataError(
            f"{path}",
            found=f"no {path.suffix} signature in its {path.stat().st_size} bytes",
            expected="a complete file",
            remedy="it is damaged: copy it again or move it away",
        )
    if is_named:
        raise UsageError(
            f"{path}",
            found="the signature of no known format",
            expected="a raw cube",
            remedy="describe headerless binary with --shape, --dtype and --order",
        )
