"""The convert command, called as the terminal calls it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from voxload.catalog.table import Catalog
from voxload.cli.convert import EPILOG, convert
from voxload.errors import UsageError, VoxloadError


@pytest.fixture
def app() -> typer.Typer:
    """Give an application of this one command."""
    app = typer.Typer()
    app.command(epilog=EPILOG)(convert)
    return app


def test_table_and_json(app: typer.Typer, tmp_path: Path) -> None:
    """The command prints a table, or the same report as JSON and nothing else."""
    np.save(tmp_path / "x.npy", np.zeros((8, 8, 8), dtype="i2"))
    first = CliRunner().invoke(app, [str(tmp_path / "x.npy"), str(tmp_path / "out")])
    assert first.exit_code == 0
    assert "1 samples" in first.stdout
    assert "1 KiB" in first.stdout
    second = CliRunner().invoke(app, [str(tmp_path / "x.npy"), str(tmp_path / "out"), "--json"])
    report = json.loads(second.stdout)
    assert (report["converted"], report["skipped"], report["bytes_read"]) == ([], ["x"], 0)
    assert len(Catalog.read(report["catalog"])) == 1


def test_checksums(app: typer.Typer, tmp_path: Path) -> None:
    """--checksums reaches the conversion, and the report says how many volumes have them."""
    np.save(tmp_path / "x.npy", np.zeros((8, 8, 8), dtype="i2"))
    call = [str(tmp_path / "x.npy"), str(tmp_path / "out"), "--checksums"]
    assert "with checksums" in CliRunner().invoke(app, call).stdout
    report = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert report["summed"] == 1
    assert Catalog.read(report["catalog"]).entry("x", "volume").checksums == "catalog.checksums.parquet"


def test_headerless_options(app: typer.Typer, tmp_path: Path) -> None:
    """Shape, type, order, axes, chunks, format and memory reach the conversion."""
    volume = np.arange(2 * 4 * 5 * 6, dtype=">i4").reshape(2, 4, 5, 6)
    (tmp_path / "x.raw").write_bytes(volume.tobytes("F"))
    words = "--format hdf5 --shape 2,4,5,6 --dtype >i4 --order F --axes CDHW --chunks 2,5,3 --max-memory 1GiB --json"
    done = CliRunner().invoke(app, [str(tmp_path / "x.raw"), str(tmp_path / "out"), *words.split()])
    assert done.exit_code == 0
    entry = Catalog.read(json.loads(done.stdout)["catalog"]).entry("x", "volume")
    assert (entry.path, entry.shape, entry.dtype) == ("x.h5", (2, 4, 5, 6), "<i4")


def test_stacks(app: typer.Typer, tmp_path: Path) -> None:
    """--stack makes channels of variables, in this order, and may be given again; a name comes before =."""
    vx, vy, bx, by, rho = (np.full((4, 4, 4), number, "i2") for number in range(5))
    np.savez(tmp_path / "u.npz", vx=vx, vy=vy, bx=bx, by=by, rho=rho)
    call = [str(tmp_path / "u.npz"), str(tmp_path / "out"), "--stack", "velocity=vy,vx", "--stack", "bx, by"]
    plan = json.loads(CliRunner().invoke(app, [*call, "--dry-run", "--json"]).stdout)
    assert {Path(one["path"]).name: one["variables"] for one in plan["volumes"]} == {
        "u.bx_by.zarr": ["bx", "by"],
        "u.rho.zarr": [],
        "u.velocity.zarr": ["vy", "vx"],
    }
    report = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    catalog = Catalog.read(report["catalog"])
    assert set(catalog.keys) == {("u", "velocity"), ("u", "bx_by"), ("u", "rho")}
    summary = catalog.summary("u", "velocity")
    assert summary is not None
    assert [channel.mean for channel in summary.channels] == [1, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--stack vx,vx", "variable 'vx' a second time"),
        ("--stack v=", "names of variables"),
        ("--stack ,", "names of variables"),
        ("--stack =vx,vy", "the name ''"),
        ("--stack v=a,b --stack v=c,d", "two volumes 'v'"),
        ("--shape 2,2", "three or four extents"),
        ("--shape 2,2,2", "no --dtype"),
        ("--dtype <f4", "no --shape"),
        ("--order F", "no --shape"),
        ("--shape 2,x,2 --dtype <f4", "integers with commas"),
        ("--chunks 2,2", "three integers d,h,w"),
        ("--chunks 0,2,2", "three extents of 1 or more"),
        ("--max-memory 8G", "write for example 512MiB"),
        ("--axes DHWX", "permutation"),
    ],
)
def test_wrong_options(app: typer.Typer, tmp_path: Path, *, words: str, message: str) -> None:
    """A wrong option raises UsageError, which the application turns into one line."""
    np.save(tmp_path / "x.npy", np.zeros((8, 8, 8, 1), dtype="i2"))
    options = words.split() if words != "--shape 2,2" else ["--shape", "2,2", "--dtype", "<f4"]
    done = CliRunner().invoke(app, [str(tmp_path / "x.npy"), str(tmp_path / "out"), *options])
    assert isinstance(done.exception, UsageError)
    assert isinstance(done.exception, VoxloadError)
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_help_has_an_example(app: typer.Typer) -> None:
    """Help shows what the command does, with an example."""
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert "voxload convert raw/ universes/" in " ".join(done.stdout.split())
