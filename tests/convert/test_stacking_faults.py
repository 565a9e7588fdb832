"""What stacks are refused for, and stacked conversions that are killed: nothing is guessed, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.convert.trees import tree
from tests.support import scripts
from voxload.convert import ConvertOptions, Hints, convert
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.convert.plan.variables import Variables, without_variable
from voxload.errors import DataError, NotFoundError, UsageError

Array = npt.NDArray[Any]
VELOCITY = ("vx", "vy", "vz")
nib: Any = nibabel
"""Not all of it is annotated."""


def write(path: Path, **volumes: Array) -> Path:
    """Write an HDF5 file of volumes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, volume in volumes.items():
            file[name] = volume
    return path


def cubes(*names: str, dtype: str = "f4", shape: tuple[int, ...] = (4, 5, 6)) -> dict[str, Array]:
    """Return volumes of these names."""
    return {name: np.full(shape, number, dtype) for number, name in enumerate(names)}


def refused(src: Path, dst: Path, error: type[Exception], match: str, **stacks: tuple[str, ...]) -> None:
    """See that a conversion is refused before anything is written."""
    with pytest.raises(error, match=match):
        convert(src, dst, options=ConvertOptions(stack=stacks or {"velocity": VELOCITY}))
    assert not dst.exists()


def test_a_sample_without_one_of_the_variables(tmp_path: Path) -> None:
    """The message names the sample, its file, the variable, and what there is."""
    write(tmp_path / "raw/u0.h5", **cubes(*VELOCITY))
    write(tmp_path / "raw/u1.h5", **cubes("vx", "vz", "rho"))
    found = r"sample 'u1' \(u1\.h5\): found no variable 'vy' beside \['rho', 'vx', 'vz'\], expected all of \['vx', 'vy'"
    refused(tmp_path / "raw", tmp_path / "out", NotFoundError, found)
    options = ConvertOptions(stack={"v": VELOCITY}, hints=Hints(datasets=("vx", "vy")))
    with pytest.raises(NotFoundError, match=r"no variable 'vz'.*--dataset too"):
        convert(tmp_path / "raw/u0.h5", tmp_path / "out", options=options)


def test_a_sample_with_none_of_them_is_converted_as_before(tmp_path: Path) -> None:
    """A stack says nothing of samples of another kind, but some sample must have it."""
    write(tmp_path / "raw/u0.h5", **cubes(*VELOCITY))
    write(tmp_path / "raw/u1.h5", **cubes("rho", "t"))
    report = convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(stack={"velocity": VELOCITY}))
    names = {path.name for path in report.catalog.parent.glob("*.zarr")}
    assert names == {"u0.zarr", "u1.rho.zarr", "u1.t.zarr"}
    found = r"--stack b: found none of \['bx', 'by'\], expected names .* \['rho', 't', 'vx', 'vy', 'vz'\]"
    refused(tmp_path / "raw", tmp_path / "new", NotFoundError, found, b=("bx", "by"))


def test_variables_of_other_extents_or_types(tmp_path: Path) -> None:
    """They are refused with the one that differs and a remedy, in one file and in several."""
    for name, volume in {**cubes(*VELOCITY), "vy": np.zeros((4, 5, 7), "f4")}.items():
        (tmp_path / "u").mkdir(exist_ok=True)
        np.save(tmp_path / f"u/{name}.npy", volume)
    match = r"sample 'u': found variable 'vy' \(.*vy\.npy\) with extents .*\(4, 5, 7\), expected .*\(4, 5, 6\), as 'vx'"
    refused(tmp_path / "u", tmp_path / "out", UsageError, match)
    np.save(tmp_path / "u/vy.npy", np.zeros((4, 5, 6), "f8"))
    match = r"variable 'vy' \(.*vy\.npy\) with type float64, expected type float32, as 'vx' .*; leave it out of --stack"
    refused(tmp_path / "u", tmp_path / "out", UsageError, match)
    write(tmp_path / "x.h5", vx=np.zeros((4, 5, 6), "f4"), vy=np.zeros((4, 5, 7), "f4"), vz=np.zeros((4, 5, 6), "f4"))
    refused(tmp_path / "x.h5", tmp_path / "out", UsageError, r"different extents.*vy \(4, 5, 7\)")


def test_variables_that_lie_elsewhere(tmp_path: Path) -> None:
    """Channels of one voxel are of one place: affines must agree as between volumes."""
    (tmp_path / "raw").mkdir()
    for number, name in enumerate(("t1", "t2")):
        affine = np.diag([1.0, 1.0, 1.0 + number, 1.0])
        nib.save(nib.Nifti1Image(np.zeros((4, 5, 6), "i2"), affine), tmp_path / f"raw/b1_{name}.nii")
    match = r"sample 'b1': found t2 .*with the affine .*expected .*as t1 "
    refused(tmp_path / "raw", tmp_path / "out", UsageError, match, mri=("t1", "t2"))


def test_variables_of_other_targets(tmp_path: Path) -> None:
    """Targets of a sample's variables are merged, and must not contradict each other."""
    for value, name in ((1.0, "vx"), (1.0, "vy"), (2.0, "vz")):
        write(tmp_path / f"raw/{name}.h5", **{name: np.zeros((4, 5, 6), "f4"), "targets": np.array([value])})
        with h5py.File(tmp_path / f"raw/{name}.h5", "r+") as file:
            file["targets"].attrs["names"] = ["om" if name != "vy" else "s8"]
    refused(tmp_path / "raw", tmp_path / "out", DataError, r"target 'om' of sample 'raw' .*found 1\.0 and 2\.0")
    write(tmp_path / "raw/vz.h5", vz=np.zeros((4, 5, 6), "f4"))
    convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(stack={"velocity": VELOCITY}))
    group = zarr.open_group(tmp_path / "out/raw.zarr", mode="r")
    manifest: Any = group.attrs["voxload"]
    assert manifest["members"][0]["targets"] == {"om": 1.0, "s8": 1.0}


def test_rows_of_numbered_samples(tmp_path: Path) -> None:
    """A table without names counts samples by the number in their name, which the variable may follow."""
    for number in range(3):
        for name in VELOCITY:
            np.save(tmp_path / f"run{number}_{name}.npy", np.zeros((4, 4, 4), "f4"))
    (tmp_path / "params.txt").write_text("# om\n0.1\n0.2\n0.3\n")
    options = ConvertOptions(stack={"v": VELOCITY}, targets=tmp_path / "params.txt")
    report = convert(tmp_path, tmp_path / "out", options=options)
    assert report.converted == ("run0", "run1", "run2")
    manifest: Any = zarr.open_group(tmp_path / "out/run2.zarr", mode="r").attrs["voxload"]
    assert manifest["members"][0]["targets"] == {"om": 0.3}


def test_names_that_are_taken_or_unclear(tmp_path: Path) -> None:
    """Two volumes of one name, two files for a variable, and a file that might be two variables."""
    write(tmp_path / "u.h5", **cubes(*VELOCITY, "rho"))
    match = r"--stack rho: found a volume 'rho' of sample 'u' besides, in u\.h5"
    refused(tmp_path / "u.h5", tmp_path / "out", UsageError, match, rho=VELOCITY)
    (tmp_path / "twice").mkdir()
    for name in ("r_vx", "vx_r", "r_vy"):
        np.save(tmp_path / f"twice/{name}.npy", np.zeros((4, 4, 4)))
    match = r"sample id 'r', volume 'vx': found two files for it, r_vx\.npy and vx_r\.npy"
    refused(tmp_path / "twice", tmp_path / "out", UsageError, match, v=("vx", "vy"))
    (tmp_path / "twice/vx_r.npy").rename(tmp_path / "twice/vx_vy.npy")
    match = r"vx_vy: found the names of two variables in a file's name, 'vx' and 'vy'.*rename"
    refused(tmp_path / "twice", tmp_path / "out", UsageError, match, v=("vx", "vy"))


@pytest.mark.parametrize(
    ("stacks", "match"),
    [
        ({"v": ()}, r"--stack v: found \(\), expected names of variables"),
        ({"v": "vx"}, r"--stack v: found 'vx', expected names of variables; write vx,vy,vz"),
        ({"v": ("vx", "")}, "--stack v"),
        ({"v": ("vx", "vy", "vx")}, "--stack v: found variable 'vx' a second time"),
        ({"v": ("vx", "vy"), "w": ("vz", "vy")}, "--stack w: found variable 'vy' a second time"),
        ({"../v": ("vx",)}, r"--stack: found the name '\.\./v', expected a name of a volume; call it 'v'"),
        ({"": ("vx",)}, "--stack: found the name ''"),
        ({"zarr.json": ("vx",)}, "call it 'xzarr.json'"),
    ],
)
def test_stacks_that_make_no_sense(stacks: Any, match: str) -> None:
    """They are refused when the options are made."""
    with pytest.raises(UsageError, match=match):
        ConvertOptions(stack=stacks)


@pytest.mark.parametrize(
    ("path", "dataset", "variable", "rest"),
    [
        ("u", "vx", "vx", "u"),
        ("vx", "volume", "vx", ""),
        ("run7/snap-vx-001", "data", "vx", "run7/snap-001"),
        ("run7/velocity_x", "image", "velocity_x", "run7"),
        ("x/run_velocity_x", "image", "velocity_x", "x/run"),
        ("vx/0001", "volume", "vx", "0001"),
        ("vx_-5", "volume", "vx", "-5"),
        ("xvx_vx", "volume", "vx", "xvx"),
        ("vxa_vx", "volume", "vx", "vxa"),
        ("v.x", "volume", "x", "v"),
        ("velocityx", "volume", "", ""),
        ("u", "fields_a", "fields/a", "u"),
    ],
)
def test_which_variable_a_cube_is(path: str, dataset: str, variable: str, rest: str) -> None:
    """Whole words of the file's name, the longest; the name that the file gives comes first."""
    known = Variables(("x", "vx", "velocity_x", "fields/a"))
    assert known.of_cube(path, dataset, is_alone=True) == variable
    assert without_variable(path, variable) == rest if variable else not rest
    if dataset in ("volume", "data", "image"):
        assert known.of_cube(path, dataset, is_alone=False) == ""


def test_a_difference_names_the_file_of_the_variable(tmp_path: Path) -> None:
    """Verification says which of the files a wrong voxel should be like."""
    (tmp_path / "u").mkdir()
    for name, volume in cubes(*VELOCITY).items():
        np.save(tmp_path / f"u/{name}.npy", volume)
    convert(tmp_path / "u", tmp_path / "out", options=ConvertOptions(stack={"v": VELOCITY}))
    path = tmp_path / "u/vy.npy"
    status, values = path.stat(), np.load(path)
    values[3, 2, 1] += 1
    np.save(path, values)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=r"voxel \(c, d, h, w\) = \(1, 3, 2, 1\).* as in .*vy\.npy"):
        convert(tmp_path / "u", tmp_path / "out", options=ConvertOptions(stack={"v": VELOCITY}, verify=True))


@pytest.mark.parametrize("variables", ["vx", [{}], [{"name": "vx", "files": []}], 7])
def test_a_manifest_that_is_none_is_not_believed(tmp_path: Path, variables: Any) -> None:
    """What somebody else wrote of variables is an error that says what to do, and no crash."""
    src = write(tmp_path / "u.h5", **cubes(*VELOCITY))
    options = ConvertOptions(stack={"v": VELOCITY})
    convert(src, tmp_path / "out", options=options)
    metadata = tmp_path / "out/u.zarr/zarr.json"
    values = json.loads(metadata.read_text())
    values["attributes"]["voxload"]["parts"][0]["variables"] = variables
    metadata.write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"u\.zarr: found a damaged manifest .*; remove it and convert again"):
        convert(src, tmp_path / "out", options=options)


CHILD = """
import sys
from voxload.convert import ConvertOptions, convert
src, dst, memory, stop = sys.argv[1:]
def show(progress):
    show.tiles += progress.bytes_done > show.done
    show.done = progress.bytes_done
    if show.tiles == int(stop):
        sys.stdout.write("reached\\n")
        sys.stdout.flush()
        sys.stdin.read()
show.tiles = show.done = 0
options = ConvertOptions(stack={"v": ("vx", "vy", "vz")}, chunks=(16, 16, 16), max_memory=int(memory), workers=1)
convert(src, dst, options=options, progress=show)
"""
"""A conversion that waits when it has stored so many tiles, until it is killed."""
MEMORY = LIBRARY_BYTES + 2**22


@contextmanager
def stopped(src: Path, dst: Path, tiles: int) -> Iterator[None]:
    """Run a conversion in a process of its own up to a tile; it is killed at the end."""
    with scripts.started(CHILD, src, dst, str(MEMORY), str(tiles)) as child:
        try:
            assert child.stdout.readline() == "reached\n"
            yield
        finally:
            child.kill()
            child.wait()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize("is_one_file", [True, False])
def test_killed_and_run_again(tmp_path: Path, is_one_file: bool) -> None:
    """What was recorded is not made again, the result is the same, and another order takes up nothing."""
    fields = {name: np.random.default_rng(place).normal(size=(96, 64, 64)) for place, name in enumerate(VELOCITY)}
    if is_one_file:
        src = write(tmp_path / "u.h5", **fields)
    else:
        src = tmp_path / "u"
        src.mkdir()
        for name, values in fields.items():
            np.save(src / f"{name}.npy", values if name != "vy" else np.asfortranarray(values))
    options = ConvertOptions(stack={"v": VELOCITY}, chunks=(16, 16, 16), max_memory=MEMORY, workers=1)
    convert(src, tmp_path / "whole", options=options)
    out = tmp_path / "out"
    with stopped(src, out, 5):
        assert not [path for path in out.iterdir() if not path.name.startswith(".")]
    report = convert(src, out, options=options)
    assert 0 < report.bytes_resumed < 3 * fields["vx"].nbytes
    assert report.bytes_read + report.bytes_resumed >= 3 * fields["vx"].nbytes
    assert tree(out) == tree(tmp_path / "whole")
    other = tmp_path / "other"
    with stopped(src, other, 5):
        pass
    turned = ConvertOptions(stack={"v": VELOCITY[::-1]}, chunks=(16, 16, 16), max_memory=MEMORY, workers=1)
    assert convert(src, other, options=turned).bytes_resumed == 0
    found = zarr.open_array(other / "u.zarr/v", mode="r")[...]
    np.testing.assert_array_equal(found, np.stack([fields[name] for name in VELOCITY[::-1]]))
