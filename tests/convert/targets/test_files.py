"""Files of targets, in every form that is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from voxload.convert.targets import read_targets
from voxload.errors import DataError, NotFoundError, UsageError

COSMO_META = """date: Mon Jan 7
namePar:
- Omega_m
- sigma_8
unitPar:
- -0.25
- 1e-3
physPar:
- 0.475
- 0.75
boxlength: 512
"""


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "sample,omega_m,h\na,0.3,0.7\nb,0.4,1e-1\n"),
        ("t.csv", "\ufeffomega_m; File ;h\n0.3;a.npy;0.7\n0.4;b.npy;0.1\n\n"),
        ("t.tsv", "ID\tomega_m\th\r\na\t0.3\t0.7\r\nb\t0.4\t0.1\r\n"),
        ("t.txt", "# written by hand\n#Name omega_m   h\na 0.3  0.7 # first\n\nb 0.4 0.1\n"),
        ("t.json", '{"a": {"omega_m": 0.3, "h": 0.7}, "b": {"h": 0.1, "omega_m": 0.4}}'),
        ("t.yaml", "a: {omega_m: 0.3, h: 0.7}\nb:\n  omega_m: 0.4\n  h: 1e-1\n"),
    ],
)
def test_named_rows(tmp_path: Path, name: str, text: str) -> None:
    """Every form of the same table gives the same targets."""
    table = read_targets(_write(tmp_path / name, text))
    assert table.names == ("omega_m", "h")
    assert table.find("b") == {"omega_m": 0.4, "h": 0.1}
    assert all(type(value) is float for value in table.find("a").values())


def test_parquet(tmp_path: Path) -> None:
    """Columns of a Parquet file are targets, with or without one that names the samples."""
    columns = {"id": ["a", "b"], "omega_m": [0.3, 0.4], "bins": pa.array([1, 2], pa.int8())}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_targets(tmp_path / "t.parquet").find("b") == {"omega_m": 0.4, "bins": 2.0}
    del columns["id"]
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_targets(tmp_path / "t.parquet").find("x", part="1") == {"omega_m": 0.4, "bins": 2.0}
    pq.write_table(pa.table({"omega_m": [0.3, None]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="row '1', column 'omega_m': found None"):
        read_targets(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet"):
        read_targets(_write(tmp_path / "t.parquet", "no parquet"))


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("latin_hypercube_params.txt", "1 2 3 4 5\n", ("Omega_m", "Omega_b", "h", "n_s", "sigma_8")),
        ("latin_hypercube_params.txt", "#a b c d e\n1 2 3 4 5\n", ("a", "b", "c", "d", "e")),
        ("latin_hypercube_params.txt", "1 2\n", ("target_0", "target_1")),
        ("params_SIMBA.txt", "1 2 3 4 5 6\n", ("Omega_m", "sigma_8", "A_SN1", "A_AGN1", "A_SN2", "A_AGN2")),
        ("mine.txt", "# two columns of mine\n1 2\n", ("target_0", "target_1")),
    ],
)
def test_names_of_columns(tmp_path: Path, name: str, text: str, names: tuple[str, ...]) -> None:
    """A header names the columns, else the data set that a file of this name and width is of, else their place."""
    assert read_targets(_write(tmp_path / name, text)).names == names


def test_cosmo_meta(tmp_path: Path) -> None:
    """The metadata of a CosmoFlow simulation give its scaled parameters to every cube in its folder."""
    table = read_targets(_write(tmp_path / "cosmoMeta.yaml", COSMO_META))
    assert table.find("any", part="3") == {"Omega_m": -0.25, "sigma_8": 0.001}
    unscaled = COSMO_META.replace("unitPar", "other")
    assert read_targets(_write(tmp_path / "m.yml", unscaled)).find("x") == {"Omega_m": 0.475, "sigma_8": 0.75}
    for text, message in (
        (COSMO_META.replace("- 1e-3\n", ""), "a value for each name"),
        (COSMO_META.replace("1e-3", "many"), "sigma_8: found 'many'"),
        (COSMO_META.replace("sigma_8", "Omega_m"), "'Omega_m' more than once"),
    ):
        with pytest.raises(DataError, match=message):
            read_targets(_write(tmp_path / "cosmoMeta.yaml", text))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "sample,h\na,1\na,2\n", "column 'sample': found 'a' more than once"),
        ("t.csv", "sample,h,h\na,1,2\n", "header: found 'h' more than once"),
        ("t.csv", "sample,\na,1\n", "an empty name"),
        ("t.csv", "sample,h\na\n", "row 0: found 1 values, expected 2"),
        ("t.csv", "sample,h\na,high\n", "row 'a', column 'h': found 'high'"),
        ("t.csv", "sample,h\na,nan\n", "found 'nan', expected a finite number"),
        ("t.csv", "sample,h\na,\n", "found ''"),
        ("t.csv", "sample\na\n", "expected columns of targets"),
        ("t.csv", "sample,h\n", "found no row"),
        ("t.csv", "", "an empty file"),
        ("t.csv", 'sample,h\n"a,1\n', r"t\.csv"),
        ("t.txt", "# a b\n", "found no row"),
        ("t.txt", "1 2\n3\n", "row 1: found 1 values"),
        ("t.txt", "1 inf\n", "found 'inf'"),
        ("t.json", '{"a": {"h": 1}, "a": {"h": 2}}', "'a' more than once"),
        ("t.json", '{"a": {"h": 1}', r"t\.json"),
        ("t.json", '{"a": {"h": true}}', "found True"),
        ("t.json", "[1]", "found a list"),
        ("t.json", "{}", "found no sample"),
        ("t.json", '{"a": 1}', "sample 'a': found 1"),
        ("t.json", '{"a": {"h": 1}, "b": {"k": 1}}', r"sample 'b': found targets \['k'\]"),
        ("t.yaml", "a: {h: 1}\na: {h: 2}\n", "'a' more than once"),
        ("t.yaml", "1: {h: 1}\n'1': {h: 2}\n", "'1' more than once"),
        ("t.yaml", "a: [1\n", r"t\.yaml"),
        ("t.yaml", "a: !!python/object/apply:os.getcwd []\n", r"t\.yaml"),
        ("t.yaml", "a: {h: .nan}\n", "found nan"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Repeated, ragged, empty, damaged and infinite tables are refused; the message says where."""
    with pytest.raises(DataError, match=message) as caught:
        read_targets(_write(tmp_path / name, text))
    assert str(tmp_path / name) in str(caught.value)


def test_calls_that_are_refused(tmp_path: Path) -> None:
    """Lost files, unknown suffixes and two columns that might name the samples are the caller's."""
    with pytest.raises(NotFoundError):
        read_targets(tmp_path / "lost.csv")
    with pytest.raises(UsageError, match=r"suffix '\.xls', expected one of \.csv"):
        read_targets(tmp_path / "t.xls")
    with pytest.raises(UsageError, match="columns 'id', 'name'"):
        read_targets(_write(tmp_path / "t.csv", "id,name,h\n1,a,2\n"))
