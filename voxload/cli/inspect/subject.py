"""Subject: what a path given to ``voxload info`` is: a stored volume, raw cubes, or both."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from voxload.catalog.places import CATALOG_NAME
from voxload.cli.inspect.raw import Choice, RawListing
from voxload.cli.inspect.stored import extents
from voxload.convert.manifest import read_manifest
from voxload.convert.sources.hints import Headerless, Hints, MemoryOrder
from voxload.data.lists.reading import USUAL, Reading
from voxload.errors import DataError, NotFoundError, UsageError, VoxloadError
from voxload.files.regular import check_regular
from voxload.geometry import SPATIAL_AXES
from voxload.readers import Location, Missing, VolumeInfo, find_format, holds, is_crowded, open_reader
from voxload.readers.protocol import Window
from voxload.readers.store import is_url
from voxload.text import listed

_HEADERLESS, _NAMELESS = "raw", "HDF5"
"""The readers' formats of files that nothing is known of, and of those that name no axes."""
_LOOKED_AT = 10
"""Volumes of which one at least has many samples or time steps where a series is long."""
MANY = 1000
"""Volumes of a file or hierarchy from which on only their names are shown: each takes a look at its metadata. Samples
and time steps of an array from which on the cubes that a conversion makes of them are not listed."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of a path."""

    path: str
    """The path."""
    choice: Choice
    """Which cubes are wanted."""
    axes: str = ""
    """Order of the axes as stored; empty where the file says it."""
    headerless: Headerless | None = None
    """Shape, type and order of a file without a header."""
    kind: str = ""
    """Name of the raw format; empty to find out."""
    allow_outside: bool = False
    """Whether files that a header names may lie outside of its folder."""
    reading: Reading = USUAL
    """How a stored volume is read, as a data set is told it."""

    @property
    def hints(self) -> Hints:
        """The same for raw formats."""
        datasets = (self.choice.dataset,) if self.choice.dataset else ()
        return Hints(self.axes or None, self.headerless, datasets, self.kind, self.allow_outside)

    def location(self, dataset: str, axes: str = "") -> Location:
        """Return where a data set finds a volume; `axes` are what is known of them where the caller says nothing."""
        within = None if self.allow_outside else ""
        place = self.reading.location(self.path, dataset, axes=self.axes or axes or None, within=within)
        facts = self.headerless
        return place if facts is None else replace(place, shape=facts.shape, dtype=facts.dtype)


@dataclass(frozen=True, slots=True)
class Packed:
    """One of several samples in one stored volume: a window of it, as training reads it."""

    sample: str
    """Its id."""
    samples: int
    """How many there are."""
    volume: str
    """Extents of the volume that they share."""

    def rows(self) -> dict[str, str]:
        """Return the same for a table."""
        return {"sample": f"{self.sample}, of {self.samples} packed into {self.volume}; --sample chooses another"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a path is."""

    stored: Location | None = None
    """The volume that readers read there."""
    listing: RawListing | None = None
    """The cubes that a conversion finds there."""
    refusal: str = ""
    """Why a conversion would not take it, where readers do."""
    packed: Packed | None = None
    """Which of several samples that a conversion packed into one volume `stored` is."""
    volumes: tuple[str, ...] = ()
    """The names of several volumes that readers read, where a conversion does not take them, or each step of them."""
    many: tuple[str, ...] = ()
    """The names of its volumes, where these are too many to look at."""
    format: str = ""
    """Format of these."""
    spacing: tuple[float, ...] | None = None
    """Distance of the voxels of `stored` along (D, H, W) in mm; None where it is not known."""


def is_catalog(path: str) -> bool:
    """Tell whether a path is a catalogue or the folder of one."""
    return Path(path).suffix == ".parquet" or (Path(path) / CATALOG_NAME).is_file()


def find_subject(given: Given) -> Subject:
    """Look at a path with the readers and with the formats of a conversion.

    Raises
    ------
    NotFoundError
        When there is nothing, or not what was chosen.
    UsageError
        When neither knows the path, or the caller has to say more.
    DataError
        When it is damaged.
    """
    if not is_url(given.path):
        check_regular(given.path)
    names, known = _stored_names(given)
    if len(names) > MANY and given.choice == Choice():
        return Subject(many=names, format=known)
    if is_url(given.path):
        return _remote(given, names, known)
    if _is_converted(Path(given.path)):
        return _converted(given, _one(given, names))
    dataset = given.choice.dataset
    if dataset and names == (dataset,) and is_crowded(find_format(given.path), given.path, MANY):
        return Subject(stored=given.location(dataset))  # without a look at the others
    return _local(given, names, known)


def _remote(given: Given, names: tuple[str, ...], known: str) -> Subject:
    """Return what a URL is: one volume, which may be an image of several arrays, or several."""
    if len(names) > 1 and not given.choice.dataset:
        refusal = _opened(given.location(""))[1]
        if isinstance(refusal, NotFoundError):
            return Subject(volumes=names, format=known)
    return Subject(stored=given.location(given.choice.dataset))


def _local(given: Given, names: tuple[str, ...], known: str) -> Subject:
    """Return what a file or folder is that no conversion made; `names` are its volumes of three or four axes."""
    choice = given.choice
    is_named = choice.dataset in names if choice.dataset else len(names) == 1
    found, refusal = (None, None) if known in ("", _HEADERLESS) else _opened(given.location(choice.dataset))
    if refusal is not None and given.reading.level is not None and not isinstance(refusal, NotFoundError):
        raise refusal
    is_alone = is_named or found is not None
    if (choice == Choice() or choice == Choice(dataset=choice.dataset)) and _is_long(given, found, names):
        return Subject(stored=given.location(choice.dataset)) if is_alone else Subject(volumes=names, format=known)
    try:
        listing = RawListing.look(given.path, given.hints, choice)
    except (UsageError, DataError) as error:
        # Readers serve files that no conversion takes; what it has against them is shown.
        if known == _HEADERLESS or (isinstance(error, NotFoundError) and (choice.sample or choice.part or given.kind)):
            raise
        if is_alone:
            return Subject(stored=given.location(choice.dataset), refusal=str(error))
        if refusal is not None and (not isinstance(refusal, NotFoundError) or (not names and not choice.dataset)):
            raise refusal from error
        if choice == Choice() and len(names) > 1 and isinstance(error, UsageError):
            return Subject(volumes=names, format=known, refusal=str(error))
        raise
    if not is_alone and choice == Choice() and listing.is_series:
        return Subject(volumes=names, format=known, listing=listing)
    if not is_alone or (is_named and not listing.is_one_volume and not listing.is_series):
        return Subject(listing=listing)
    axes = _axes_of_content(listing, found) if known == _NAMELESS else ""
    return Subject(stored=given.location(choice.dataset, axes), listing=listing)


def _is_long(given: Given, found: VolumeInfo | None, names: tuple[str, ...]) -> bool:
    """Tell whether a conversion would make so many samples of an array that they are not listed."""
    some = [found] if found is not None else [_opened(given.location(name))[0] for name in names[:_LOOKED_AT]]
    return any(one is not None and one.samples * one.steps > MANY for one in some)


def _axes_of_content(listing: RawListing, found: VolumeInfo | None) -> str:
    """Return the axes that a raw format is known to have; empty where the file names others, or a data set sees these.

    A data set takes three axes without names for (D, H, W).
    """
    axes = listing.axes
    return axes if found is None or (found.axes == SPATIAL_AXES != axes) else ""


def _opened(location: Location) -> tuple[VolumeInfo | None, VoxloadError | None]:
    """Return what is known of the volume that a data set would read, or why it would not."""
    try:
        with closing(open_reader(location, missing=Missing.FILL)) as reader:
            return reader.describe(), None
    except (UsageError, DataError) as error:
        return None, error


def _stored_names(given: Given) -> tuple[tuple[str, ...], str]:
    """Return the volumes that readers find in a path, and the name of their format; none where they know none."""
    try:
        known = find_format(given.path)
    except NotFoundError:
        raise
    except UsageError:
        if is_url(given.path):
            raise
        return (), ""  # a folder of raw files, or of nothing
    if given.choice.dataset and holds(known, given.path, given.choice.dataset):
        return (given.choice.dataset,), known.name
    if known.name != _HEADERLESS:
        return known.datasets(given.path), known.name
    facts = given.headerless
    is_plain = facts is not None and facts.order is MemoryOrder.C and not facts.header_bytes
    return ("",) if is_plain else (), known.name


def _one(given: Given, names: tuple[str, ...]) -> str:
    """Return the named dataset, or the only one; raises UsageError that lists them where there are several."""
    if not given.choice.dataset and len(names) > 1:
        raise UsageError(given.path, found=f"{len(names)} volumes, {listed(names)}", remedy="name one with --dataset")
    return given.choice.dataset


def _converted(given: Given, dataset: str) -> Subject:
    """Return what a conversion made: a sample, or one of those that it packed into the volume.

    Raises NotFoundError when the sample that was chosen is not among them.
    """
    stored = given.location(dataset)
    try:
        manifest = read_manifest(Path(given.path))
    except DataError:  # of another version; what is stored is described as it is
        manifest = None
    if manifest is None or dataset not in ("", manifest.dataset):
        return Subject(stored=stored)
    if len(manifest.members) < 2:
        return Subject(stored=stored, spacing=manifest.parts[0].spacing)
    wanted = given.choice.sample
    member = next((one for one in manifest.members if wanted in ("", one.sample)), None)
    if member is None:
        some = [one.sample for one in manifest.members[:5]]
        raise NotFoundError(given.path, found=f"no sample {wanted!r}", expected=f"one of {some} and others")
    window = Window(member.start, member.shape)
    packed = Packed(member.sample, len(manifest.members), extents(manifest.shape[1:]))
    return Subject(stored=replace(stored, window=window), packed=packed, spacing=manifest.part_of(member).spacing)


def _is_converted(path: Path) -> bool:
    """Tell whether a conversion made a path, be it that of another version."""
    try:
        return read_manifest(path) is not None
    except DataError:
        return True
