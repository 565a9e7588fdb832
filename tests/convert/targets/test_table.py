"""Which row of a table belongs to which sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxload.convert.targets import read_targets
from voxload.errors import UsageError


@pytest.mark.parametrize(
    ("row", "sample"),
    [
        ("universe_7", "universe_7"),
        ("universe_7.hdf5", "universe_7"),
        ("21688988/universe_7.hdf5", "21688988_universe_7"),
        ("/data/raw/universe_7.hdf5", "universe_7"),
        ("universe_7", "21688988/universe_7.hdf5"),
        ("brain.nii.gz", "brain"),
        ("density_z=0.5", "density_z=0.5"),
        ("brain.v2.nii.gz", "brain.v2"),
        ("scans/brain.v2.nii", "brain.v2"),
    ],
)
def test_rows_by_name(row: str, sample: str) -> None:
    """A row names a sample by its id, its path, or its file with or without suffix."""
    table = read_targets({"other": {"omega_m": 0.1}, row: {"omega_m": 0.3}})
    assert table.names == ("omega_m",)
    assert table.find(sample) == {"omega_m": 0.3}


def test_the_closest_name_counts() -> None:
    """A whole name goes before a file's, and two that fit equally well are refused."""
    table = read_targets({"a/cube.npy": {"m": 1}, "b/cube.npy": {"m": 2}, "b_cube": {"m": 3}})
    assert table.find("b_cube") == {"m": 3.0}
    assert table.find("a_cube") == {"m": 1.0}
    with pytest.raises(UsageError, match=r"several rows for sample 'cube'.*'a/cube\.npy', 'b/cube\.npy'"):
        table.find("cube")


def test_rows_that_are_numbers() -> None:
    """A row named by a number is that of the part, or of the folder, with this number."""
    table = read_targets({"7": {"m": 1}, "0012": {"m": 2}})
    assert table.find("grid_0007", part="0007") == {"m": 1.0}
    assert table.find("LH_12_df", number=12) == {"m": 2.0}
    with pytest.raises(UsageError, match="no targets for sample 'x' in 2 samples, '7', '0012'"):
        table.find("x", number=3)


def test_rows_without_names(tmp_path: Path) -> None:
    """The number of the part is the row, else that of the folder; without a number, or a row, it is an error."""
    path = tmp_path / "params_LH_IllustrisTNG.txt"
    path.write_text("".join(f"0.{row} 0.8 1 2 3 4\n" for row in range(10)))
    table = read_targets(path)
    assert table.names == ("Omega_m", "sigma_8", "A_SN1", "A_AGN1", "A_SN2", "A_AGN2")
    assert table.find("grid_0007", part="0007", number=3)["Omega_m"] == 0.7
    assert table.find("3_df", number=3)["Omega_m"] == 0.3
    with pytest.raises(UsageError, match=r"no targets for sample 'x' in rows 0 to 9.*add row 10"):
        table.find("x", number=10)
    with pytest.raises(UsageError, match="sample 'x' without a number"):
        table.find("x")
    with pytest.raises(UsageError, match="sample 'x' without a number"):
        table.find("x", part="front", number=3)


def test_unknown_samples_are_refused() -> None:
    """The message says what the table holds."""
    table = read_targets({name: {"m": 1} for name in "abcd"})
    with pytest.raises(
        UsageError, match=r"targets: found no targets for sample 'e' in 4 samples, 'a', 'b', 'c' and so"
    ):
        table.find("e")
