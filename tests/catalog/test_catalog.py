"""catalog: the Parquet table of samples, ours and other tools'."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import processes
from voxload.catalog.places import CATALOG_NAME, place_of
from voxload.catalog.table import Catalog, Entry
from voxload.errors import DataError, NotFoundError, UsageError

NAN, INF = float("nan"), float("inf")


def entry(sample: str, dataset: str = "full", **targets: float) -> Entry:
    """Return a row."""
    return Entry(
        sample,
        f"{sample}.zarr",
        dataset,
        (8, 8, 8, 4),
        "<i2",
        "DHWC",
        1000,
        targets or {"omega_m": 0.3, "sigma_8": 0.8},
    )


ROWS = [entry("b", omega_m=0.25, sigma_8=1.5), entry("a", "full"), entry("a", "labels")]


def foreign(**changes: Any) -> pa.Table:
    """Return a table as another tool may write it: other string, list and integer types, no schema metadata."""
    columns: dict[str, Any] = {
        "extra": pa.array(["x", "y"]),
        "sample": pa.array([1, 2], pa.int32()),
        "path": pa.array(["a.h5", "b.h5"], pa.large_string()),
        "dataset": pa.array(["full", None]).dictionary_encode(),
        "shape": pa.array([[8, 8, 8], [8, 8, 9]], pa.large_list(pa.int32())),
        "dtype": pa.array(["<i2", "<i2"]),
        "axes": pa.array(["DHW", "DHW"]),
        "stored_bytes": pa.array([10, 20], pa.uint64()),
        "omega_m": pa.array([0.25, 0.5], pa.float32()),
        "seed": pa.array([7, 8], pa.int16()),
        "__index_level_0__": pa.array([0, 1]),
    } | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Rows, order, targets and folder come back."""
    catalog = Catalog.from_entries(ROWS, tmp_path)
    catalog.write(tmp_path / CATALOG_NAME)
    again = Catalog.read(tmp_path / CATALOG_NAME)
    assert again.table.equals(catalog.table)
    assert again.root == tmp_path
    assert len(again) == 3
    assert again.samples == ("a", "b")
    assert again.datasets == ("full", "labels")
    assert again.target_names == ("omega_m", "sigma_8")
    assert again.entry("b", "full") == ROWS[0]
    assert again.entry("a", "labels") == ROWS[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [CATALOG_NAME]


def test_equal_rows_give_equal_catalogues(tmp_path: Path) -> None:
    """The order in which rows arrive does not matter."""
    one = Catalog.from_entries(ROWS, tmp_path)
    other = Catalog.from_entries(reversed(ROWS), tmp_path)
    assert one.table.equals(other.table)


def test_any_tool_reads_it(tmp_path: Path) -> None:
    """Plain pyarrow sees plain columns of plain types."""
    Catalog.from_entries(ROWS, tmp_path).write(tmp_path / CATALOG_NAME)
    table = pq.read_table(tmp_path / CATALOG_NAME)
    own = [f.name for f in fields(Entry) if f.name not in ("targets", "coordinates")]  # columns by their own names
    assert table.schema.names == [*own, "omega_m", "sigma_8"]
    assert table.schema.field("shape").type == pa.list_(pa.int64())
    assert table.schema.field("omega_m").type == pa.float64()
    assert table.column("path").to_pylist() == ["a.zarr", "a.zarr", "b.zarr"]
    assert not table.schema.metadata


def test_a_catalogue_moves_with_its_folder(tmp_path: Path) -> None:
    """Paths count from the folder that the catalogue lies in, wherever that is now."""
    (tmp_path / "old").mkdir()
    Catalog.from_entries(ROWS, tmp_path / "old").write(tmp_path / "old" / CATALOG_NAME)
    (tmp_path / "old").rename(tmp_path / "new")
    again = Catalog.read(tmp_path / "new" / CATALOG_NAME)
    assert place_of(again.root, again.entry("b", "full").path) == os.fspath(tmp_path / "new" / "b.zarr")


def test_other_tools_catalogues_are_read(tmp_path: Path) -> None:
    """Another tool's types are taken as ours; words and pandas' index are no targets; no name is an empty name."""
    pq.write_table(foreign(), tmp_path / "_theirs=1.parquet", store_schema=False)
    catalog = Catalog.read(tmp_path / "_theirs=1.parquet")
    assert catalog.target_names == ("omega_m", "seed")
    assert catalog.samples == ("1", "2")
    assert catalog.entry("2", "") == Entry("2", "b.h5", "", (8, 8, 9), "<i2", "DHW", 20, {"omega_m": 0.5, "seed": 8.0})
    catalog.check_targets(["omega_m", "seed"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": None}, "no column shape"),
        ({"axes": None, "path": None}, "no column path, axes"),
        ({"shape": pa.array(["8x8x8", "8x8x8"])}, "column 'shape' of type string"),
        ({"stored_bytes": pa.array(["many", "few"])}, "column 'stored_bytes' of type string"),
        ({"stored_bytes": pa.array([0.5, 1.0])}, "column 'stored_bytes' of type double"),
        ({"path": pa.array(["a.h5", None])}, "a null in column 'path'"),
        ({"shape": pa.array([[8, 8, 8], None])}, "a null in column 'shape'"),
        ({"shape": pa.array([[8, 8, 8], [8, None, 8]])}, "a null in column 'shape'"),
        ({"sample": pa.array(["a", "a"]), "dataset": pa.array(["x", "x"])}, "sample 'a': found dataset 'x' twice"),
    ],
)
def test_wrong_columns_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """A column that is missing, of another type or with nulls is named, with the catalogue's folder."""
    with pytest.raises(DataError, match=words) as caught:
        Catalog(foreign(**changes), tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    """Parquet allows two columns of one name; and which one is meant."""
    table = foreign().append_column("omega_m", pa.array([0.1, 0.2]))
    with pytest.raises(DataError, match="two columns 'omega_m'"):
        Catalog(table, tmp_path)
    with pytest.raises(DataError, match="two columns 'path'"):
        Catalog.from_entries([entry("a", path=1.0)], tmp_path)


@pytest.mark.parametrize("value", [NAN, INF, -INF, None])
def test_targets_must_be_finite(tmp_path: Path, value: float | None) -> None:
    """A target that is null, NaN or infinite is refused with its name and sample, when made and when read."""
    targets: Any = {"omega_m": 0.3, "sigma_8": value}
    with pytest.raises(DataError, match=r"target 'sigma_8' of sample 'c': found .*, expected a finite number"):
        Catalog.from_entries([*ROWS, entry("c", **targets)], tmp_path)
    catalog = Catalog(foreign(omega_m=pa.array([0.25, value], pa.float64())), tmp_path)
    catalog.check_targets(["seed"])
    with pytest.raises(DataError, match="target 'omega_m' of sample '2'"):
        catalog.check_targets(["omega_m"])


def test_rows_of_a_sample_must_agree(tmp_path: Path) -> None:
    """Two rows of one sample with different targets: one of them is wrong."""
    rows = [entry("a", "full", omega_m=0.25), entry("a", "labels", omega_m=0.5)]
    with pytest.raises(DataError, match=r"sample 'a': found 0\.25 and 0\.5, expected one value"):
        Catalog.from_entries(rows, tmp_path)


def test_rows_must_have_the_same_targets(tmp_path: Path) -> None:
    """A sample without one of the targets is named."""
    with pytest.raises(DataError, match=r"sample 'b': found targets \['omega_m'\]"):
        Catalog.from_entries([entry("a"), entry("b", omega_m=0.1)], tmp_path)


def test_a_dataset_twice_is_refused(tmp_path: Path) -> None:
    """A sample has each dataset once."""
    with pytest.raises(DataError, match="sample 'b': found dataset 'full' twice"):
        Catalog.from_entries([*ROWS, replace(ROWS[0], path="other.h5")], tmp_path)


def test_unknown_names_are_listed(tmp_path: Path) -> None:
    """A dataset, sample or target that is not there names those that are."""
    catalog = Catalog.from_entries(ROWS, tmp_path)
    with pytest.raises(NotFoundError, match=r"sample 'a' .* no dataset 'x', expected one of \['full', 'labels'\]"):
        catalog.entry("a", "x")
    with pytest.raises(NotFoundError, match="expected a sample that is in the catalogue"):
        catalog.entry("z", "full")
    with pytest.raises(NotFoundError, match=r"target 'h0': .*expected one of \['omega_m', 'sigma_8'\]"):
        catalog.check_targets(["h0"])


def test_select_keeps_samples(tmp_path: Path) -> None:
    """A selection has all rows of its samples; none at all is allowed, an unknown one is not."""
    catalog = Catalog.from_entries(ROWS, tmp_path)
    assert catalog.select(["a"]).table.num_rows == 2
    assert catalog.select(["b"]).entry("b", "full") == ROWS[0]
    assert catalog.select(["b", "a"]).table.equals(catalog.table)
    nothing = catalog.select([])
    assert (len(nothing), nothing.samples, nothing.target_names) == (0, (), ("omega_m", "sigma_8"))
    with pytest.raises(UsageError, match="no rows"):
        nothing.check_not_empty()
    with pytest.raises(NotFoundError, match="no sample 'q'"):
        catalog.select(["a", "z", "q"])


def test_a_catalogue_of_nothing_goes_round(tmp_path: Path) -> None:
    """An empty catalogue can be written and read."""
    Catalog.from_entries([], tmp_path).write(tmp_path / CATALOG_NAME)
    assert len(Catalog.read(tmp_path / CATALOG_NAME)) == 0


def test_a_catalogue_travels(tmp_path: Path) -> None:
    """Pickle carries it to a worker process."""
    catalog = Catalog.from_entries(ROWS, tmp_path)
    copy = pickle.loads(pickle.dumps(catalog))  # noqa: S301 - our own bytes
    assert copy.entry("a", "full") == ROWS[1]
    assert copy.root == tmp_path


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_catalogue_is_refused(tmp_path: Path, keep: float) -> None:
    """A file that was cut anywhere is no catalogue."""
    path = tmp_path / CATALOG_NAME
    Catalog.from_entries(ROWS, tmp_path).write(path)
    os.truncate(path, int(path.stat().st_size * keep))
    with pytest.raises(DataError, match=r"catalog\.parquet: found .*, expected a complete Parquet file"):
        Catalog.read(path)


@pytest.mark.parametrize("name", ["no.parquet", ".", "file/inside.parquet"])
def test_a_catalogue_that_is_not_there(tmp_path: Path, name: str) -> None:
    """A missing file, a folder without one, and a path through a file are all no catalogue."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match=r"no such file|no catalog\.parquet in it.*voxload convert"):
        Catalog.read(tmp_path / name)


def test_writing_into_no_folder_is_said(tmp_path: Path) -> None:
    """The folder must be there."""
    with pytest.raises(NotFoundError, match="no such folder; make the folder first"):
        Catalog.from_entries(ROWS, tmp_path).write(tmp_path / "no" / CATALOG_NAME)


@pytest.mark.long
def test_a_full_disk_is_the_storages_fault(tmp_path: Path) -> None:
    """A write that the system refuses leaves the old catalogue. The limit stands in for the disk."""
    path = tmp_path / CATALOG_NAME
    Catalog.from_entries(ROWS, tmp_path).write(path)
    script = (
        "import resource, sys; from pathlib import Path; from voxload.catalog.table import Catalog\n"
        "from voxload.errors import StorageError\n"
        "path = Path(sys.argv[1]); catalog = Catalog.read(path)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))\n"
        "try: catalog.write(path)\n"
        "except StorageError as error: print(error)"
    )

    run = processes.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "File too large" in run.stdout
    assert Catalog.read(path).samples == ("a", "b")
    assert [p.name for p in tmp_path.iterdir()] == [CATALOG_NAME]


@pytest.mark.long
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_value_is_an_error(tmp_path: Path, place: float, bit: int) -> None:
    """Rows, labels and paths are read as they were written or not at all; only the footer has no checksum."""
    path = tmp_path / CATALOG_NAME
    catalog = Catalog.from_entries(ROWS, tmp_path)
    catalog.write(path)
    content = bytearray(path.read_bytes())
    first = len(b"PAR1")
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[first + int(place * (footer - first))] ^= 1 << bit
    path.write_bytes(content)
    try:
        found = Catalog.read(path)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found.table.equals(catalog.table)
