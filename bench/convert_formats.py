"""Claim: which raw formats voxload converts, how it knows them, and the test that shows that no axis moves.

Prints the tables of formats, or writes them into docs/formats.md between two marks; with --check it tells whether the
document holds them. Names and signs come from the formats themselves, in the order in which they are asked.

    python bench/convert_formats.py [--check | --write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.documented import ROOT, Documented, table_row
from voxload.convert.sources.registry import FORMATS

DOCUMENT = ROOT / "docs" / "formats.md"
TESTS = Path("tests") / "convert"
"""Where the tests lie that are named."""

_SIGN = "Tell whether "
_NAMED = "four axes need `--axes`"
_UNITPAR = "`unitPar`, named by `namePar`, else `omega_m, sigma_8, n_spec, h_0` of four"
_HEADERLESS = "`--shape --dtype --order --axes`, which count more than the name"
_COSMOFLOW_HDF5, _NAMES = "sources/test_cosmoflow_hdf5.py", "sources/test_npyfamilies.py"
_INFLATED = "sources/test_inflated.py::test_no_axis_moves"
_GRIDDED = "gridding/test_gridded.py::test_no_axis_moves"


@dataclass(frozen=True, slots=True)
class Row:
    """What the tables say of a format beside its name and its sign."""

    axes: str
    """Order of the axes as stored, slowest first."""
    says: str
    """Targets and attributes that are taken over."""
    options: str
    """Options that matter."""
    tests: tuple[str, ...]
    """What shows that no axis moves, as FILE::FUNCTION in `TESTS`."""
    library: str = ""
    """Packages of the extra ``formats`` that it needs."""


ROWS = {
    "ExaLearn cosmoUniverse": Row(
        "DHWC of (N, N, N, redshifts), else `--axes`", _UNITPAR, "`--axes`", ("test_run.py::test_no_axis_moves",)
    ),
    "MLPerf CosmoFlow split HDF5": Row(
        "DHWC", "`y`, named like `unitPar`", "", (f"{_COSMOFLOW_HDF5}::test_no_axis_moves_in_an_mlperf_split",)
    ),
    "NoPFS split HDF5": Row(
        "CDHW or DHWC, as the extents say, else `--axes`",
        _UNITPAR,
        "`--axes`",
        (f"{_COSMOFLOW_HDF5}::test_no_axis_moves_in_a_nopfs_split",),
    ),
    "LBANN split HDF5": Row(
        "CWHD: all axes are turned round",
        _UNITPAR,
        "`--axes`",
        (f"{_COSMOFLOW_HDF5}::test_no_axis_moves_in_an_lbann_split",),
    ),
    "multiScale_tryG": Row(
        "samples, then DHWC",
        "the sample's row of `unitPar`",
        "",
        (f"{_COSMOFLOW_HDF5}::test_no_axis_moves_in_multiscale_files",),
    ),
    "Nyx HDF5 (gimlet)": Row(
        "DHW of (x, y, z)",
        "box size, cosmology, redshift, units of each field",
        "`--dataset`",
        ("sources/test_nyxhdf5.py::test_no_axis_moves_in_a_nyx_field",),
    ),
    "The Well": Row(
        "trajectories, steps, then DHW of (x, y, z); DHWC for vectors and tensors",
        "time, parameters of the simulation, boundary conditions",
        "`--dataset`",
        ("sources/test_thewell.py::test_no_axis_moves_in_the_well",),
    ),
    "DLIO synthetic HDF5": Row(
        f"samples, then DHW; {_NAMED}",
        "`label`",
        "`--axes`, `--dataset`",
        ("sources/test_dlio.py::test_no_axis_moves_in_dlio_records",),
    ),
    "Gadget HDF5 particles": Row(
        "x, y, z of the positions become D, H, W",
        "box size, redshift, particles, how they were put on the grid",
        "`--grid` and those beside it, see below",
        ("gridding/test_gadget_hdf5.py::test_no_axis_moves", _GRIDDED),
    ),
    "MLPerf CosmoFlow TFRecord": Row(
        "DHWC",
        "`y`: `omega_m, sigma_8, n_spec, h_0`",
        "",
        ("sources/test_tfrecord.py::test_no_axis_moves_in_mlperf_records",),
    ),
    "CosmoFlow 2018 TFRecord": Row(
        "DHW",
        "`label_raw`: `omega_m, sigma_8`, then numbered",
        "",
        ("sources/test_tfrecord.py::test_no_axis_moves_in_2018_records",),
    ),
    "NoPFS raw binary": Row(
        "CDHW",
        "the four numbers: `omega_m, sigma_8, n_spec, h_0`",
        _HEADERLESS,
        ("sources/test_headerless.py::test_no_axis_moves_in_nopfs_samples",),
    ),
    "PyCOLA grid": Row(
        "DHW",
        "which piece of the box it is",
        "`--targets cosmoMeta.yaml`",
        (f"{_NAMES}::test_no_axis_moves_in_pycola_grids", f"{_NAMES}::test_no_axis_moves_in_pycola_sheets"),
    ),
    "PyCOLA particles": Row(
        "px, py, pz become D, H, W",
        "particles, how they were put on the grid",
        "`--grid`, `--box-size`, `--unit count` or `overdensity`, see below",
        ("gridding/test_recognise.py::test_no_axis_moves", _GRIDDED),
    ),
    "Nyx raw": Row(
        "DHW, D running fastest",
        "redshift",
        _HEADERLESS,
        ("sources/test_headerless.py::test_no_axis_moves_in_nyx_snapshots",),
    ),
    "SDRBench": Row(
        "DHW; extents that differ need `--shape`",
        "",
        _HEADERLESS,
        ("sources/test_headerless.py::test_no_axis_moves_in_sdrbench_fields",),
    ),
    "Quijote 3-D cube": Row(
        "DHW",
        "box size, redshift, mass assignment, cosmology, realisation",
        "`--targets latin_hypercube_params.txt`",
        (f"{_NAMES}::test_no_axis_moves_in_quijote_cubes",),
    ),
    "CAMELS 3-D grids": Row(
        "simulations, then DHW",
        "suite, set, redshift",
        "`--targets params_LH_IllustrisTNG.txt`",
        (f"{_NAMES}::test_no_axis_moves_in_camels_grids",),
    ),
    "Fortran unformatted grid": Row(
        "DHW of (dim1, dim2, dim3), dim1 running fastest",
        "box size and redshift, where the header has them",
        "`--axes`",
        ("sources/test_fortrangrid.py::test_no_axis_moves_in_fortran_grids",),
    ),
    "FITS": Row(
        f"W, H, D are NAXIS1, 2, 3; {_NAMED}, unless one of them has length 1",
        "keywords",
        "`--dataset`, `--axes`",
        ("sources/test_fits.py::test_no_axis_moves",),
        "astropy",
    ),
    "NIfTI": Row(
        "W, H, D are dim[1], 2, 3; a fourth, such as time, is C",
        "spacing, affine, orientation, units",
        "",
        ("sources/test_nifti.py::test_no_axis_moves", _INFLATED),
        "nibabel",
    ),
    "NRRD": Row(
        f"W, H, D are the first to third of `sizes`; of four, `kinds` say which is C, else {_NAMED}",
        "spacing, space, origin, directions, units",
        "`--axes`",
        ("sources/test_nrrd.py::test_no_axis_moves", _INFLATED),
        "pynrrd",
    ),
    "MetaImage": Row(
        f"W, H, D are the first to third of `DimSize`, C the channels of a voxel; {_NAMED}",
        "spacing, origin, direction, orientation",
        "`--axes`",
        ("sources/test_metaimage.py::test_no_axis_moves", _INFLATED),
    ),
    "ASDF": Row(
        f"DHW, in C or Fortran order; {_NAMED}",
        "plain values of the tree, of `header` and of `meta`",
        "`--dataset`, `--axes`",
        ("sources/test_asdffile.py::test_no_axis_moves",),
        "asdf, pyyaml",
    ),
    "HDF5": Row(
        f"as dimension labels c, d, h, w say, else DHW; {_NAMED}",
        "`targets` with attribute `names`, or `unitPar`; the dataset's attributes",
        "`--dataset`, `--axes`",
        ("sources/test_hdf5.py::test_no_axis_moves_in_hdf5",),
    ),
    "Zarr": Row(
        f"as dimension names c, d, h, w say, else DHW; {_NAMED}",
        "the array's attributes",
        "`--dataset`, `--axes`",
        ("sources/test_zarrfolder.py::test_no_axis_moves_in_zarr",),
    ),
    "npz": Row(
        f"DHW, in C or Fortran order; {_NAMED}",
        "",
        "`--dataset`, `--axes`",
        ("sources/test_npz.py::test_no_axis_moves_in_archives",),
    ),
    "npy": Row(f"DHW, in C or Fortran order; {_NAMED}", "", "`--axes`", ("test_run.py::test_no_axis_moves",)),
}
"""Every format by name."""

BY_OPTION = {
    "Gadget-1 and Gadget-2 binary particles": ("gridding/test_gadget_binary.py::test_no_axis_moves", _GRIDDED),
    "headerless binary": ("test_run.py::test_headerless_cubes", "test_sources.py::test_boxes_equal_numpy"),
}
"""What only an option makes known, and what shows that no axis moves there."""


def sign(name: str) -> str:
    """Return how a format is recognised: the first line of its `claims`."""
    kind = next(known for known in FORMATS if known.name == name)
    first = (kind.claims.__doc__ or "").strip().splitlines()[0]
    return first.removeprefix(_SIGN).removesuffix(".").replace("``", "`")


def section() -> str:
    """Return what stands between the marks."""
    return "\n\n".join(["\n".join(_formats()), "\n".join(_tests())])


def _formats() -> Iterator[str]:
    """Yield the lines of the table of formats."""
    yield table_row(["format", "recognised when", "axes, slowest first", "targets and attributes", "options", "needs"])
    yield table_row(["---"] * 6)
    for known in FORMATS:
        row = ROWS[known.name]
        yield table_row([known.name, sign(known.name), row.axes, row.says, row.options, row.library])


def _tests() -> Iterator[str]:
    """Yield the lines of the table of tests."""
    yield table_row(["format", f"no axis moves: tests in `{TESTS.as_posix()}/`"])
    yield table_row(["---"] * 2)
    for name, tests in {**{known.name: ROWS[known.name].tests for known in FORMATS}, **BY_OPTION}.items():
        yield table_row([name, ", ".join(f"`{test}`" for test in tests)])


DOCUMENTED = Documented(DOCUMENT, "bench/convert_formats.py", section)


if __name__ == "__main__":
    sys.exit(DOCUMENTED.main(__doc__))
