"""Headerless cubes with documents beside them: what is left out, what is converted, and what stays an error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from voxload.catalog.table import Catalog
from voxload.cli.main import run
from voxload.convert import ConvertOptions, convert
from voxload.convert.sources import Headerless, Hints
from voxload.convert.sources.documents import is_document
from voxload.convert.sources.probe import Probe
from voxload.convert.targets.files import _READERS
from voxload.errors import DataError, NotFoundError

SHAPE, DTYPE = (3, 4, 5), "<i2"
NBYTES = 3 * 4 * 5 * 2
OPTIONS = ConvertOptions(hints=Hints(headerless=Headerless(SHAPE, DTYPE)))
DOCUMENTS = {
    "params.csv": b"name,omega_m\na,0.3\nb,0.31\n",
    "fits.csv": b"name,omega_m\n" + b"x,0.3\n" * 17 + b"end,0",
    "latin.txt": "name Gr\u00f6\u00dfe\n".encode("latin-1"),
    "wide.txt": "name\tomega_m\n".encode("utf-16"),
    "README": b"Density of two boxes.\n",
    "LICENCE": b"Density of two boxes.\n",
    "notes/NOTES.MD": b"# Boxes\n",
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
    "catalog.parquet": b"PAR1" + bytes(30) + b"PAR1",
    "density.hdr": b"ENVI\nsamples = 5\n",
    "empty.log": b"",
}


def _folder(place: Path) -> dict[str, npt.NDArray[Any]]:
    """Write two cubes of running numbers and return them by sample."""
    (place / "raw").mkdir()
    volumes = [(np.arange(60) + 100 * number).astype(DTYPE).reshape(SHAPE) for number in range(2)]
    cubes: dict[str, npt.NDArray[Any]] = dict(zip("ab", volumes, strict=True))
    for name, cube in cubes.items():
        cube.tofile(place / "raw" / f"{name}.raw")
    return cubes


def test_documents_beside_cubes_are_left_out(tmp_path: Path, converted: Any) -> None:
    """Tables, texts and pictures of any length are listed as ignored, and the cubes are converted bit for bit."""
    cubes = _folder(tmp_path)
    for name, content in DOCUMENTS.items():
        path = tmp_path / "raw" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert len(DOCUMENTS["fits.csv"]) == NBYTES
    report = convert(tmp_path / "raw", tmp_path / "out", options=OPTIONS)
    assert sorted(report.ignored) == sorted(DOCUMENTS)
    catalog = Catalog.read(report.catalog)
    assert sorted(catalog.samples) == sorted(cubes)
    for name, cube in cubes.items():
        np.testing.assert_array_equal(converted(report.catalog, name)[0], cube)


def test_the_command_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In its table and its JSON, in a dry run and by info, with targets from a table that is one of them."""
    _folder(tmp_path)
    (tmp_path / "raw/params.csv").write_bytes(DOCUMENTS["params.csv"])
    words = ["--shape", "3,4,5", "--dtype", DTYPE]
    raw, out = f"{tmp_path / 'raw'}", f"{tmp_path / 'out'}"
    assert run(["info", raw, *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == ["params.csv"]
    assert run(["convert", raw, out, *words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == ["params.csv"]
    assert run(["convert", raw, out, *words, "--targets", f"{raw}/params.csv"]) == 0
    assert "1 files, such as params.csv" in capsys.readouterr().out
    catalog = Catalog.read(tmp_path / "out/catalog.parquet")
    assert [catalog.entry(sample, "volume").targets for sample in "ab"] == [{"omega_m": 0.3}, {"omega_m": 0.31}]


@pytest.mark.parametrize("name", ["cut.raw", "cut.f32", "cut", "cut.dat", "cut.csv", "README", "empty.raw", "_SUCCESS"])
def test_what_may_be_a_cube_that_was_cut_stays_an_error(tmp_path: Path, name: str) -> None:
    """Where name or content do not say that it is a document, with both lengths; nothing is converted."""
    _folder(tmp_path)
    content = b"" if name in {"empty.raw", "_SUCCESS"} else np.arange(59, dtype=DTYPE).tobytes()
    (tmp_path / "raw" / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: found {len(content)} bytes, expected {NBYTES} bytes"):
        convert(tmp_path / "raw", tmp_path / "out", options=OPTIONS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["note.dat", "note", "readme.raw"])
def test_text_that_no_name_calls_so_is_an_error(tmp_path: Path, name: str) -> None:
    """Voxels may be letters: by its content alone nothing is left out."""
    _folder(tmp_path)
    (tmp_path / "raw" / name).write_bytes(b"d" * (NBYTES - 1))
    with pytest.raises(DataError, match=rf"{name}: found {NBYTES - 1} bytes, expected {NBYTES} bytes.*no cube"):
        convert(tmp_path / "raw", tmp_path / "out", options=OPTIONS)


def test_cubes_of_any_name_are_converted(tmp_path: Path) -> None:
    """A length that fits suffices, with a document's suffix too where the content is none, and the caller's word."""
    _folder(tmp_path)
    for name in ("c.csv", "d", "e.dat"):
        np.arange(60, dtype=DTYPE).tofile(tmp_path / "raw" / name)
    report = convert(tmp_path / "raw", tmp_path / "out", options=OPTIONS)
    assert sorted(Catalog.read(report.catalog).samples) == ["a", "b", "c", "d", "e"]
    (tmp_path / "named.csv").write_bytes(DOCUMENTS["fits.csv"])
    report = convert(tmp_path / "named.csv", tmp_path / "one", options=OPTIONS)
    assert (list(Catalog.read(report.catalog).samples), report.ignored) == (["named"], ())


def test_a_folder_of_documents_has_no_cube(tmp_path: Path) -> None:
    """It is an error, as of any folder without cubes."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/fits.csv").write_bytes(DOCUMENTS["fits.csv"])
    with pytest.raises(NotFoundError, match="no raw cube among 1 files"):
        convert(tmp_path / "raw", tmp_path / "out", options=OPTIONS)


@pytest.mark.parametrize("is_named_only", [False, True])
def test_the_table_of_targets_is_no_cube(tmp_path: Path, is_named_only: bool) -> None:
    """It may have a suffix that voxels have, too: the caller says what it is, by its path or by its name alone."""
    _folder(tmp_path)
    table = tmp_path / "raw/params.dat"
    table.write_bytes(b"# name omega_m\na 0.3\nb 0.31\n")
    told = Path("params.dat") if is_named_only else table
    report = convert(tmp_path / "raw", tmp_path / "out", options=replace(OPTIONS, targets=told))
    assert report.ignored == ("params.dat",)
    assert Catalog.read(report.catalog).entry("b", "volume").targets == {"omega_m": 0.31}


def test_other_tables_of_targets_are_documents(tmp_path: Path) -> None:
    """Of text or of Parquet: they lie beside the cubes by design."""
    for suffix in _READERS.keys() - {".dat"}:
        path = tmp_path / f"targets{suffix}"
        path.write_bytes(b"PAR1" if suffix == ".parquet" else b"a 1\n")
        assert is_document(Probe(path)), suffix
