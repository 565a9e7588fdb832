"""write: what is written is whole, keeps every column, and is read by us, pandas and duckdb."""

from __future__ import annotations

import importlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.catalog.tables import lines, rows, table, written
from tests.support import scripts
from voxload.catalog import Rows, catalog_path, filter_rows, parse, write_rows
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.errors import DataError, NotFoundError, UsageError


def test_all_columns_are_kept(tmp_path: Path) -> None:
    """Words, dates and nested values of other tools come through a filter as they were, in their order."""
    nested = [{"run": 1, "tags": ["x"]}, {"run": 2, "tags": []}]
    place = written(tmp_path / CATALOG_NAME, ["b", "a"], note=["old", "new"], omega_m=[0.25, 0.5], origin_of=nested)
    kept = filter_rows(Rows.read(tmp_path), where=parse("omega_m > 0.3"))
    write_rows({tmp_path / "some.parquet": kept})
    again = pq.read_table(tmp_path / "some.parquet")
    assert again.column_names[-3:] == ["note", "omega_m", "origin_of"]
    assert again.column("origin_of").to_pylist() == nested[1:]
    assert again.schema.metadata is None
    assert Catalog.read(tmp_path / "some.parquet").table.equals(Catalog.read(place).select(["a"]).table)


def test_pandas_and_duckdb_read_it(tmp_path: Path) -> None:
    """A table that pandas wrote, with an index of its own, is filtered; pandas and duckdb read what comes of it."""
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    frame = table(["a", "b", "c"], omega_m=[0.1, 0.2, 0.3], note=["x", "y", "z"]).to_pandas()
    frame.index = pandas.Index([10, 20, 30], name="number")
    frame.to_parquet(tmp_path / "theirs.parquet")
    kept = filter_rows(Rows.read(tmp_path / "theirs.parquet"), where=parse("sample in ['a', 'c'] and number > 5"))
    place = tmp_path / "ours.parquet"
    write_rows({place: kept})
    assert Catalog.read(place).samples == ("a", "c")
    again = pandas.read_parquet(place)
    assert list(again["note"]) == ["x", "z"]
    assert list(again["omega_m"]) == [0.1, 0.3]
    found = duckdb.read_parquet(str(place)).filter("omega_m > 0.2").select("sample, shape, statistics.mean").fetchall()
    assert found == [("c", [4, 8, 8, 8], None)]


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    """Nothing is replaced unasked, a folder never, and of several outputs none is written if one may not be."""
    taken = written(tmp_path / "taken.parquet", ["old"])
    before = taken.read_bytes()
    outputs = {tmp_path / "new.parquet": rows(["a"], tmp_path), taken: rows(["b"], tmp_path)}
    with pytest.raises(UsageError, match=r"found a file of that name, expected none; .* --overwrite"):
        write_rows(outputs)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.parquet"]
    assert taken.read_bytes() == before
    write_rows(outputs, overwrite=True)
    assert Rows.read(taken).samples == ["b"]
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(UsageError, match="found a folder"):
        write_rows({tmp_path / "folder.parquet": rows(["a"])}, overwrite=True)
    assert (tmp_path / "folder.parquet").is_dir()


def test_names_that_no_catalogue_can_have(tmp_path: Path) -> None:
    """Only .parquet is known again as a catalogue, and the folder must be there."""
    with pytest.raises(UsageError, match=r"expected a name that ends in \.parquet"):
        write_rows({tmp_path / "catalog.csv": rows(["a"])})
    with pytest.raises(NotFoundError, match="no such folder; make the folder first"):
        write_rows({tmp_path / "no" / "catalog.parquet": rows(["a"])})


@pytest.mark.long
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """If the second output cannot be written the first is not there either. The limit stands in for the disk."""
    write_rows({tmp_path / "in.parquet": rows([str(number) for number in range(5000)], tmp_path)})
    script = (
        "import resource, sys; from pathlib import Path; from voxload.catalog import Rows, write_rows\n"
        "from voxload.errors import StorageError\n"
        "folder = Path(sys.argv[1]); rows = Rows.read(folder / 'in.parquet')\n"
        "few = rows.keep([n < 5 for n in range(5000)])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try: write_rows({folder / 'one.parquet': few, folder / 'two.parquet': rows})\n"
        "except StorageError as error: print(error)"
    )
    run = scripts.run(script, tmp_path, imports=["voxload.catalog"])
    assert "two.parquet: found" in run.stdout
    assert "File too large" in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_folder_means_its_catalogue(tmp_path: Path) -> None:
    """Reading takes a file or a folder; what is no catalogue is named."""
    place = written(tmp_path / CATALOG_NAME, ["a"])
    assert catalog_path(tmp_path) == catalog_path(place) == place
    assert lines(Rows.read(tmp_path)) == lines(Rows.read(place))
    with pytest.raises(NotFoundError, match="no such file"):
        Rows.read(tmp_path / "none")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="no column sample"):
        Rows.read(tmp_path / "other.parquet")


def test_the_package_says_what_it_has() -> None:
    """Every public name is there."""
    package = importlib.import_module("voxload.catalog")
    assert all(hasattr(package, name) for name in package.__all__)
