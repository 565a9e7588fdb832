"""``voxload verify``: what is damaged is listed, and its exit status is 0, 1 or 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.convert.write.lock import locked
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError
from voxload.files.atomic import remove
from voxload.verification import Check, verify
from voxload.verification.volume import LISTED, VerifyReport

SHAPE = (8, 12, 6)
CHUNKS = (4, 4, 4)
SUMS = "catalog.checksums.parquet"


def _converted(tmp_path: Path, *, stored: StoredFormat = StoredFormat.ZARR, checksums: bool = True) -> Path:
    """Return a folder of three converted samples."""
    (tmp_path / "raw").mkdir()
    for index, name in enumerate("abc"):
        volume = np.random.default_rng(index).integers(0, 100, SHAPE).astype("<i2")
        np.save(tmp_path / "raw" / f"{name}.npy", volume)
    options = ConvertOptions(format=stored, chunks=CHUNKS, checksums=checksums)
    convert(tmp_path / "raw", tmp_path / "out", options=options)
    return tmp_path / "out"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], *, status: int) -> dict[str, Any]:
    assert run(["verify", *arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _damage(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_sound_samples(tmp_path: Path, stored: StoredFormat, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is compared, nothing is damaged, and the status is 0."""
    out = _converted(tmp_path, stored=stored)
    found = _json([str(out)], capsys, status=0)
    assert found["volumes"] == {"checksum": 3, "decoded": 0, "read": 0}
    assert (found["chunks"], found["damaged"], found["faults"], found["recorded"]) == (36, 0, [], 0)
    assert found["bytes_read"] > 0
    assert run(["verify", str(out / CATALOG_NAME)]) == 0
    printed = capsys.readouterr().out
    assert "every chunk compared with its checksum" in printed
    assert "nothing" in printed


def test_every_fault_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults of several chunks and samples are all found in one run, and the status is 1."""
    out = _converted(tmp_path)
    shard = out / "a.zarr/volume/c/0/0/0/0"
    offsets = np.frombuffer(shard.read_bytes()[-4 - 16 * 12 : -4], "<u8").reshape(2, 3, 2, 2)[..., 0]
    for place in ((0, 1, 0), (1, 2, 1)):
        _damage(shard, int(offsets[place]) + 7)
    shutil.rmtree(out / "c.zarr")
    found = _json([str(out)], capsys, status=1)
    assert [(fault["sample"], fault["chunk"]) for fault in found["faults"]] == [
        ("a", [0, 0, 1, 0]),
        ("a", [0, 1, 2, 1]),
        ("c", None),
    ]
    assert "CRC-32C" in found["faults"][0]["error"]
    assert found["faults"][0]["file"] == str(out / "a.zarr")
    assert "no such file" in found["faults"][2]["error"]
    assert found["damaged"] == 3
    assert run(["verify", str(out)]) == 1
    printed = capsys.readouterr()
    assert "0,1,2,1" in printed.out
    assert printed.err == ""
    assert max(map(len, printed.out.splitlines())) <= 80


def test_a_lost_shard_is_a_fault_of_every_chunk_in_it(tmp_path: Path) -> None:
    """What the checksums know and the storage lacks is damage."""
    out = _converted(tmp_path)
    (out / "b.zarr/volume/c/0/0/0/0").unlink()
    report = verify(out)
    assert report.damaged == 12
    assert {fault.sample for fault in report.faults} == {"b"}


@pytest.mark.parametrize("stored", list(StoredFormat))
def test_without_checksums_chunks_are_decoded(
    tmp_path: Path, stored: StoredFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report says that this check is weaker; it still finds what cannot be decoded."""
    out = _converted(tmp_path, stored=stored, checksums=False)
    found = _json([str(out)], capsys, status=0)
    assert found["volumes"] == {"checksum": 0, "decoded": 3, "read": 0}
    path = out / f"b{stored.suffix}"
    if path.is_dir():
        shard = path / "volume/c/0/0/0/0"
        _damage(shard, 20)
    else:
        with h5py.File(path) as file:
            place = file["volume"].id.get_chunk_info(0).byte_offset
        _damage(path, place + 20)
    found = _json([str(out)], capsys, status=1)
    assert [(fault["sample"], fault["chunk"]) for fault in found["faults"]] == [("b", [0, 0, 0, 0])]
    assert run(["verify", str(out)]) == 1
    assert "no checksums: every chunk decoded" in capsys.readouterr().out


def _catalogue(folder: Path, *names: str, **columns: Any) -> Path:
    """Write a catalogue as another tool would: of files of 4^3, without the column of checksums."""
    table = {
        "sample": [Path(name).stem for name in names],
        "path": list(names),
        "dataset": ["x" if name.endswith("h5") else "" for name in names],
        "shape": [[4, 4, 4]] * len(names),
        "dtype": ["<i2"] * len(names),
        "axes": ["DHW"] * len(names),
        "stored_bytes": [128] * len(names),
    }
    pq.write_table(pa.table(table | columns), folder / "mine.parquet")
    return folder / "mine.parquet"


def test_contiguous_storage_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has no chunks is read whole, which finds a file that was cut short, and gets no checksums."""
    np.save(tmp_path / "one.npy", np.zeros((4, 4, 4), "<i2"))
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["x"] = np.zeros((4, 4, 4), "<i2")
    catalog = _catalogue(tmp_path, "one.npy", "two.h5")
    before = catalog.read_bytes()
    found = _json([str(catalog), "--write"], capsys, status=0)
    assert found["volumes"] == {"checksum": 0, "decoded": 0, "read": 2}
    assert (found["recorded"], found["bytes_read"]) == (0, 256)
    assert catalog.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.parquet", "one.npy", "two.h5"]
    (tmp_path / "one.npy").write_bytes((tmp_path / "one.npy").read_bytes()[:-1])
    assert [fault["sample"] for fault in _json([str(catalog)], capsys, status=1)["faults"]] == ["one"]


def test_checksums_are_recorded_for_any_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--write gives sound volumes checksums and leaves the catalogue's other columns; reads then verify."""
    for name in ("one", "two", "bad"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=np.full((4, 4, 4), 7, "<i2"), chunks=(2, 4, 4), fletcher32=True)
    with h5py.File(tmp_path / "bad.h5") as file:
        place = file["x"].id.get_chunk_info(1).byte_offset
    _damage(tmp_path / "bad.h5", place)
    catalog = _catalogue(tmp_path, "two.h5", "bad.h5", "one.h5", note=["x", "y", "z"])
    found = _json([str(catalog), "--write"], capsys, status=1)
    assert (found["recorded"], found["damaged"], found["faults"][0]["chunk"]) == (2, 1, [1, 0, 0])
    table = pq.read_table(catalog)
    name = "mine.checksums.parquet"
    assert table.column("checksums").to_pylist() == [name, "", name]
    assert table.column("note").to_pylist() == ["x", "y", "z"]
    found = _json([str(catalog), "--write"], capsys, status=1)
    assert (found["volumes"], found["recorded"]) == ({"checksum": 2, "decoded": 1, "read": 0}, 0)
    _damage(tmp_path / "bad.h5", place)
    found = _json([str(catalog), "--write"], capsys, status=0)
    assert (found["volumes"], found["recorded"]) == ({"checksum": 2, "decoded": 1, "read": 0}, 1)
    assert _json([str(catalog)], capsys, status=0)["volumes"] == {"checksum": 3, "decoded": 0, "read": 0}
    with h5py.File(tmp_path / "one.h5", "r+") as file:
        file["x"][0, 0, 0] = 8
    data = VolumeDataset(catalog)
    assert data.sample_ids == ("bad", "one", "two")
    with pytest.raises(DataError, match="CRC-32C"):
        data[1]
    data.close()


def test_a_checksum_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--write on a damaged sample that has checksums leaves them, and the damage stays a fault."""
    out = _converted(tmp_path)
    _damage(out / "a.zarr/volume/c/0/0/0/0", 20)
    for _ in range(2):
        found = _json([str(out), "--write"], capsys, status=1)
        assert (found["recorded"], found["damaged"]) == (0, 1)


def test_a_conversion_keeps_what_verify_recorded(tmp_path: Path) -> None:
    """Checksums of a converted sample, recorded later, outlast the next conversion into its folder."""
    out = _converted(tmp_path, checksums=False)
    assert verify(out, write=True).recorded == 3
    assert convert(tmp_path / "raw", out, options=ConvertOptions(chunks=CHUNKS)).summed == 3
    assert verify(out).volumes[Check.CHECKSUM] == 3


def test_chunks_that_were_never_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are faults, unless the caller says that they should be so; checksums then know them."""
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file.create_dataset("x", (4, 4, 4), "<i2", chunks=(2, 4, 4))[2:] = 1
    catalog = _catalogue(tmp_path, "one.h5")
    found = _json([str(catalog)], capsys, status=1)
    assert found["faults"][0]["chunk"] == [0, 0, 0]
    assert "no chunk" in found["faults"][0]["error"]
    assert _json([str(catalog), "--write", "--missing", "fill"], capsys, status=0)["recorded"] == 1
    assert _json([str(catalog)], capsys, status=0)["volumes"]["checksum"] == 1
    with h5py.File(tmp_path / "one.h5", "r+") as file:
        file["x"][:2] = 0
    assert "found data, expected none" in _json([str(catalog)], capsys, status=1)["faults"][0]["error"]


@pytest.mark.parametrize("harm", [remove, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_damaged_file_of_checksums(tmp_path: Path, harm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples whose checksums cannot be read are faults, not samples without checksums."""
    out = _converted(tmp_path)
    harm(out / SUMS)
    found = _json([str(out)], capsys, status=1)
    assert [(fault["sample"], fault["chunk"]) for fault in found["faults"]] == [(name, None) for name in "abc"]
    assert all(str(out / SUMS) in fault["error"] for fault in found["faults"])


def test_wrong_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No catalogue, a damaged one, and a folder at work."""
    assert run(["verify", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert run(["verify", str(tmp_path)]) == 2
    (tmp_path / CATALOG_NAME).write_bytes(b"no catalogue")
    assert run(["verify", str(tmp_path)]) == 1
    capsys.readouterr()
    catalog = _catalogue(tmp_path, "one.npy")
    with locked(tmp_path):
        assert run(["verify", str(catalog), "--write"]) == 2
    assert "another conversion" in capsys.readouterr().err


def test_faults_beyond_the_list_are_counted(tmp_path: Path) -> None:
    """A report stays small when everything is gone."""
    entries = [Entry(f"{i:04}", f"{i}.h5", "x", (4, 4, 4), "<i2", "DHW", 1) for i in range(LISTED + 7)]
    Catalog.from_entries(entries, tmp_path).write(tmp_path / CATALOG_NAME)
    report = verify(tmp_path)
    assert isinstance(report, VerifyReport)
    assert (report.damaged, len(report.faults)) == (LISTED + 7, LISTED)


def test_progress(tmp_path: Path) -> None:
    """It never goes back and ends at the catalogue's bytes."""
    out = _converted(tmp_path)
    shown: list[tuple[int, int]] = []
    verify(out, progress=lambda at: shown.append((at.bytes_done, at.bytes_total)))
    total = sum(Catalog.read(out / CATALOG_NAME).table.column("stored_bytes").to_pylist())
    assert shown == sorted(shown)
    assert shown[-1] == (total, total)


def test_info_says_whether_there_are_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs a number, for people a sentence."""
    out = _converted(tmp_path, checksums=False)
    for options, count, words in (([], 0, "none (voxload verify --write"), (["--write"], 3, "compared at every read")):
        assert run(["verify", str(out), *options]) == 0
        capsys.readouterr()
        assert run(["info", str(out), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["volumes"], found["checksums"]) == (3, count)
        assert run(["info", str(out)]) == 0
        assert words in capsys.readouterr().out
