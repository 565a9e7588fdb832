"""Shards: members are read where they lie, by the laws of readers, and what is damaged is told of."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws import reader as laws
from tests.readers.shards import archives
from tests.support.rangeserver import serving
from voxload.errors import DataError, NotFoundError, UsageError, VoxloadError
from voxload.geometry import Box
from voxload.readers import Location, Reader, open_reader
from voxload.readers.shards import ShardFormat, samples_of

VOLUME = laws.voxels((5, 6, 7))
MEMBERS: dict[str, tuple[Callable[[], bytes], Callable[[], Any], str]] = {
    "jpg": (
        lambda: archives.jpeg(archives.pixels(1)),
        lambda: archives.shown(archives.jpeg(archives.pixels(1))),
        "HWC",
    ),
    "gray.jpeg": (
        lambda: archives.jpeg(archives.pixels(2, "L")),
        lambda: archives.shown(archives.jpeg(archives.pixels(2, "L"))),
        "HWC",
    ),
    "progressive.jpg": (
        lambda: archives.jpeg(archives.pixels(1), progressive=True),
        lambda: archives.shown(archives.jpeg(archives.pixels(1), progressive=True)),
        "HWC",
    ),
    "png": (lambda: archives.png(archives.pixels(3)), lambda: archives.pixels(3), "HWC"),
    "l.png": (lambda: archives.png(archives.pixels(4, "L")), lambda: archives.pixels(4, "L"), "HW"),
    "rgba.png": (lambda: archives.png(archives.pixels(5, "RGBA")), lambda: archives.pixels(5, "RGBA"), "HWC"),
    "deep.png": (lambda: archives.png(archives.pixels(6, "I;16")), lambda: archives.pixels(6, "I;16"), "HW"),
    "mkv": (lambda: archives.clip(archives.frames(7)), lambda: archives.frames(7), "DHWC"),
    "npy": (lambda: archives.npy(VOLUME), lambda: VOLUME, "DHW"),
}
"""By extension: what is stored, what is meant, and the axes of that."""


def _archive(path: Path) -> Path:
    return archives.archive(path, {f"a/b.{name}": stored() for name, (stored, _, _) in MEMBERS.items()})


def _picture(reader: Reader) -> laws.Array:
    """Return all pixels, ``(H, W, C)``."""
    return laws.read(reader, reader.describe().whole)[:, 0].transpose(1, 2, 0)


@pytest.mark.parametrize("name", MEMBERS)
def test_members_keep_the_laws(tmp_path: Path, name: str) -> None:
    """Boxes of every kind are those of what Pillow, numpy and the maker of the clip have."""
    _, meant, axes = MEMBERS[name]
    shard = _archive(tmp_path / "s.tar")
    with closing(open_reader(Location(f"{shard}/a/b", name))) as reader:
        assert reader.describe().format == "tar shard"
        laws.check_reader(reader, laws.to_volume(meant(), axes))


def test_a_part_of_a_clip_is_decoded_up_to_its_end(tmp_path: Path) -> None:
    """What lies behind the last frame that is wanted may be damaged, and is not looked at."""
    found = archives.clip(archives.frames(7))
    shard = archives.archive(tmp_path / "s.tar", {"a.mkv": found})
    with closing(open_reader(Location(f"{shard}/a", "mkv"))) as reader:
        block = laws.read(reader, Box((2, 3, 0), (4, 9, 18)))
        assert np.array_equal(block.transpose(1, 2, 3, 0), archives.frames(7)[2:4, 3:9])
    with closing(open_reader(Location(f"{shard}/a", "mkv", axes="THWC"))) as reader:
        assert (reader.describe().steps, reader.describe().shape) == (7, (21, 1, 24, 18))


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_kind_are_listed_as_tarfile_does(tmp_path: Path, kind: int) -> None:
    """Long names and names in other letters have headers of their own; folders are passed by."""
    deep = "/".join(["a" * 40] * 3) if kind == tarfile.USTAR_FORMAT else "/".join(["é" * 50] * 6)
    names = ["x/1.jpg", "x/1.cls", f"{deep}/2.seg.png", f"{deep}/2.png", "3.npy"]
    shard = archives.archive(tmp_path / "s.tar", {name: name.encode() for name in names}, kind=kind)
    found = list(samples_of(str(shard)))
    assert [one.name.key for one in found] == ["x/1", f"{deep}/2", "3"]
    assert [sorted(one.members) for one in found] == [["cls", "jpg"], ["png", "seg.png"], ["npy"]]
    with tarfile.open(shard) as known:
        placed = {each.name: (each.offset, each.offset_data, each.size) for each in known}
    assert {each.name: (each.at, each.offset, each.size) for one in found for each in one.members.values()} == placed
    for one in found:
        assert ShardFormat().datasets(str(one.name)) == ShardFormat().datasets(f"{shard}/{one.name.key}")


def test_what_gnu_tar_wrote_is_read(tmp_path: Path) -> None:
    """Folders are members, too; sorted by name, samples are whole."""
    for number in (1, 2):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.png").write_bytes(archives.png(archives.pixels(number)))
        (tmp_path / "in" / f"{number}.cls").write_text(str(number))
    subprocess.run(["/usr/bin/env", "tar", "--sort=name", "-cf", "s.tar", "in"], cwd=tmp_path, check=True, timeout=60)
    first, second = samples_of(str(tmp_path / "s.tar"))
    assert (first.name.key, second.name.key) == ("in/1", "in/2")
    with closing(open_reader(Location(str(second.name), "png"))) as reader:
        assert np.array_equal(_picture(reader), archives.pixels(2))
    assert ShardFormat().read_vector(str(second.name), "cls").tolist() == [2]


def test_numbers_of_a_sample(tmp_path: Path) -> None:
    """Texts, documents and arrays are targets; what is none is told of."""
    shard = archives.birds(tmp_path / "s.tar", [6])
    name, known = f"{shard}/birds/0006", ShardFormat()
    assert known.datasets(name) == ("jpg", "seg.png")
    assert known.read_vector(name, "cls").tolist() == [1]
    assert known.read_vector(name, "height").tolist() == [1.5]
    assert known.read_vector(name, "place").tolist() == [1, 6]
    with pytest.raises(DataError, match=r"could not convert string to float"):
        known.read_vector(name, "name")
    with pytest.raises(NotFoundError, match=r"no member 'colour', expected one of"):
        known.read_vector(name, "colour")
    with pytest.raises(UsageError, match=r"2 volumes, \['jpg', 'seg.png'\], expected the name of one"):
        open_reader(Location(name))
    with pytest.raises(UsageError, match=r"a member 'cls', expected a JPEG"):
        open_reader(Location(name, "cls"))


def test_behind_a_url(tmp_path: Path) -> None:
    """A member is asked for by ranges: an archive is never fetched whole."""
    shard = _archive(tmp_path / "s.tar")
    filler = archives.archive(tmp_path / "big.tar", {"0.bin": bytes(2**22), "1.png": archives.png(archives.pixels(3))})
    with serving(tmp_path) as server:
        url = f"{server.url}/{shard.name}/a/b"
        for name, (_, meant, axes) in MEMBERS.items():
            with closing(open_reader(Location(url, name))) as reader:
                assert laws.same_bits(laws.read(reader, reader.describe().whole), laws.to_volume(meant(), axes))
        *_, last = samples_of(str(filler))
        with closing(open_reader(Location(f"{server.url}/{filler.name}/1@{last.name.at}", "png"))) as reader:
            assert np.array_equal(
                laws.read(reader, reader.describe().whole)[:, 0].transpose(1, 2, 0), archives.pixels(3)
            )
        with pytest.raises(NotFoundError):
            open_reader(Location(f"{server.url}/none.tar/1", "png"))


DAMAGE: dict[str, tuple[Callable[[], dict[str, bytes]], str, str]] = {
    "a JPEG that is cut short": (lambda: {"a.jpg": archives.jpeg(archives.pixels(1))[:-60]}, "jpg", "ends early"),
    "a JPEG without its end": (lambda: {"a.jpg": archives.jpeg(archives.pixels(1))[:-2]}, "jpg", "ends early"),
    "a JPEG's first bytes": (lambda: {"a.jpg": archives.jpeg(archives.pixels(1))[:30]}, "jpg", "ends early"),
    "a PNG that is cut short": (lambda: {"a.png": archives.png(archives.pixels(1))[:-60]}, "png", "too small"),
    "no picture": (lambda: {"a.png": b"GIF89a"}, "png", "neither a JPEG nor a PNG"),
    "nothing": (lambda: {"a.jpg": b""}, "jpg", "neither a JPEG nor a PNG"),
    "a picture of any extents": (
        lambda: {"a.png": archives.png(archives.pixels(1))[:16] + b"\x7f\xff\xff\xff" * 2 + bytes([8, 2])},
        "png",
        "VOXLOAD_MAX_FRAME",
    ),
    "a clip that is cut short": (lambda: {"a.mkv": archives.clip(archives.frames(1))[:900]}, "mkv", "whole video"),
    "no clip": (lambda: {"a.mp4": b"moov" * 50}, "mp4", "whole video"),
    "an array that is cut short": (lambda: {"a.npy": archives.npy(VOLUME)[:-1]}, "npy", "bytes"),
    "Python objects": (lambda: {"a.npy": archives.npy(np.array([[[{}]]]))}, "npy", "pickled"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_damaged_is_told_of(tmp_path: Path, case: str) -> None:
    """Never is what is missing made up."""
    members, extension, words = DAMAGE[case]
    shard = archives.archive(tmp_path / "s.tar", members())
    with pytest.raises(DataError, match=words), closing(open_reader(Location(f"{shard}/a", extension))) as reader:
        laws.read(reader, reader.describe().whole)


def test_archives_that_are_none(tmp_path: Path) -> None:
    """Links and what is compressed, cut short or parted is refused, with what to do."""
    whole = archives.birds(tmp_path / "s.tar", [1, 2]).read_bytes()
    shard = tmp_path / "t.tar"
    shard.write_bytes(gzip.compress(whole))
    with pytest.raises(DataError, match=r"unpack one that is compressed"):
        list(samples_of(str(shard)))
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"it is incomplete|no header of a member"):
        list(samples_of(str(shard)))
    with tarfile.open(shard, "w") as written:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        written.addfile(link)
    with pytest.raises(DataError, match=r"a link, a sparse file or a device"):
        list(samples_of(str(shard)))
    archives.archive(shard, [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")])
    with pytest.raises(DataError, match=r"sample 'a': found twice, with others in between"):
        list(samples_of(str(shard)))
    archives.archive(shard, [("a.jpg", b"1"), ("a.jpg", b"2")])
    with pytest.raises(DataError, match=r"two members 'jpg'"):
        list(samples_of(str(shard)))
    with pytest.raises(NotFoundError, match=r"no sample 'c'"):
        open_reader(Location(f"{shard}/c", "jpg"))


def test_an_archive_that_was_written_anew(tmp_path: Path) -> None:
    """A place that is another sample's now is not read as the one that was there."""
    shard = archives.birds(tmp_path / "s.tar", [1, 2, 3])
    places = [str(one.name) for one in samples_of(str(shard))]
    archives.birds(shard, [3, 2, 1])
    with pytest.raises(DataError, match=r"another sample, or none, at that place.*list it again"):
        open_reader(Location(places[0], "jpg"))


def test_a_reader_that_is_open_notices(tmp_path: Path) -> None:
    """What it read first it may give; what it reads again is the member that it was opened for, or an error."""
    folder = tmp_path / "served"
    folder.mkdir()
    shard = archives.birds(folder / "s.tar", [1, 2])
    _, second = (str(one.name) for one in samples_of(str(shard)))
    with serving(folder) as server:
        for path in (second, second.replace(str(folder), server.url)):
            with closing(open_reader(Location(path, "seg.png"))) as reader:
                assert np.array_equal(_picture(reader)[..., 0], archives.pixels(2, "L"))
                assert np.array_equal(_picture(reader)[..., 0], archives.pixels(2, "L"))
                archives.birds(shard, [2, 1])
                with pytest.raises(DataError, match=r"another member, or none, at byte .*'birds/0002.seg.png'"):
                    _picture(reader)
                archives.birds(shard, [1, 2])


def test_a_folder_that_is_named_as_an_archive(tmp_path: Path) -> None:
    """What lies below it is read by its own format, also behind a URL."""
    (tmp_path / "old.tar").mkdir()
    np.save(tmp_path / "old.tar" / "a.npy", VOLUME)
    stored = zarr.create_array(str(tmp_path / "old.tar" / "b.zarr"), shape=VOLUME.shape, dtype=VOLUME.dtype)
    stored[:] = VOLUME
    with serving(tmp_path) as server:
        for path in (str(tmp_path / "old.tar" / "a.npy"), f"{server.url}/old.tar/b.zarr"):
            with closing(open_reader(Location(path))) as reader:
                assert np.array_equal(laws.read(reader, reader.describe().whole)[0], VOLUME)


@pytest.mark.few_cases(1)
def test_no_flip_of_a_header_gives_other_pixels(tmp_path: Path) -> None:
    """Headers of archives have sums; what they describe is what was stored, or is refused."""
    shard = archives.birds(tmp_path / "s.tar", [4])
    whole = shard.read_bytes()
    (sample,) = samples_of(str(shard))
    starts = [member.at for member in sample.members.values()]
    meant = archives.pixels(4, "L")

    @settings(max_examples=60)
    @given(start=st.sampled_from(starts), place=st.integers(0, 511), bit=st.integers(0, 7))
    def law(start: int, place: int, bit: int) -> None:
        data = bytearray(whole)
        data[start + place] ^= 1 << bit
        shard.write_bytes(bytes(data))
        try:
            with closing(open_reader(Location(str(sample.name), "seg.png"))) as reader:
                assert np.array_equal(laws.read(reader, reader.describe().whole)[0, 0], meant)
        except VoxloadError:
            pass

    law()
