"""Samples that share a volume, cut from one cube or packed from many, and the figures of their voxels."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import voxload
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, Hints, Packing, StoredFormat, convert
from voxload.convert.encode.statistics import StatisticsSum, count_channels, total_of
from voxload.convert.plan import planning
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.geometry import Boundary
from voxload.verification import verify

Array = npt.NDArray[Any]
FORMATS = list(StoredFormat)


@pytest.fixture
def cubes(tmp_path: Path) -> dict[str, Array]:
    """Give five cubes of one shape in a folder, each with other voxels."""
    (tmp_path / "raw").mkdir()
    found = {}
    for number in range(5):
        cube = np.random.default_rng(number).integers(-50, 1000, (12, 8, 10), dtype="i2")
        np.save(tmp_path / f"raw/u{number}.npy", cube)
        found[f"u{number}"] = cube
    return found


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("stored", FORMATS)
def test_split_cubes(tmp_path: Path, cubes: dict[str, Array], stored: StoredFormat) -> None:
    """A cube that is split is stored once; its samples are windows of it, with recorded universe and origin."""
    options = ConvertOptions(format=stored, split=(6, 4, 5), checksums=True)
    report = convert(tmp_path / "raw", tmp_path / "out", options=options)
    assert len(report.converted) == 5 * 8
    catalog = Catalog.read(report.catalog)
    data = voxload.VolumeDataset(report.catalog)
    assert data.sample_ids == catalog.samples
    for number, sample in enumerate(catalog.samples):
        entry = catalog.entry(sample, "volume")
        assert entry.origin is not None
        assert sample == entry.universe + "".join(
            f"_{lo // width}" for lo, width in zip(entry.origin, (6, 4, 5), strict=True)
        )
        place = tuple(slice(lo, lo + width) for lo, width in zip(entry.origin, (6, 4, 5), strict=True))
        np.testing.assert_array_equal(data[number][0].numpy()[0], cubes[entry.universe][place])
    data.close()
    assert len({catalog.entry(sample, "volume").path for sample in catalog.samples}) == 5
    assert verify(report.catalog).damaged == 0
    again = convert(tmp_path / "raw", tmp_path / "out", options=options)
    assert (again.converted, len(again.skipped)) == ((), 40)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("stored", FORMATS)
def test_packed_cubes(tmp_path: Path, cubes: dict[str, Array], stored: StoredFormat) -> None:
    """Small samples share a volume, and each is read as if it were alone, its own border included."""
    options = ConvertOptions(format=stored, pack=Packing.ALWAYS, checksums=True)
    report = convert(tmp_path / "raw", tmp_path / "out", options=options)
    catalog = Catalog.read(report.catalog)
    assert {catalog.entry(sample, "volume").path for sample in catalog.samples} == {f"u0+4{stored.suffix}"}
    assert sum(catalog.entry(sample, "volume").stored_bytes for sample in catalog.samples) <= report.bytes_written
    for boundary in Boundary:
        data = voxload.VolumeDataset(report.catalog, halo=2, boundary=boundary)
        mode = "wrap" if boundary is Boundary.PERIODIC else "constant"
        for number, cube in enumerate(cubes.values()):
            np.testing.assert_array_equal(data[number][0].numpy()[0], np.pad(cube, 2, mode=mode))  # type: ignore[call-overload] # mode is one of two
        data.close()
    assert verify(report.catalog).damaged == 0


@pytest.mark.long
def test_a_packed_volume_grows_by_conversion_anew(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """A cube that comes later changes what is packed with what; nothing of the older volumes is left."""
    options = ConvertOptions(pack=Packing.ALWAYS)
    convert(tmp_path / "raw", tmp_path / "out", options=options)
    np.save(tmp_path / "raw/a.npy", cubes["u0"])
    report = convert(tmp_path / "raw", tmp_path / "out", options=options)
    assert Catalog.read(report.catalog).samples == ("a", *cubes)
    volumes = [path.name for path in (tmp_path / "out").glob("*.zarr")]
    assert volumes == ["a+5.zarr"]
    alone = convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(pack=Packing.NEVER))
    assert sorted(path.stem for path in (tmp_path / "out").glob("*.zarr")) == ["a", *cubes]
    assert len(Catalog.read(alone.catalog)) == 6


def test_what_shares_a_volume_with_others_is_not_torn_out(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """A sample that was packed with others is not converted alone: the others would be lost, or it be there twice."""
    convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(pack=Packing.ALWAYS))
    with pytest.raises(UsageError, match=r"u0\+4\.zarr: found sample 'u1', and others of .*u0\.npy"):
        convert(tmp_path / "raw/u1.npy", tmp_path / "out")
    (tmp_path / "other").mkdir()
    np.save(tmp_path / "other/u2.npy", cubes["u2"])
    with pytest.raises(UsageError, match=r"u0\+4\.zarr"):
        convert(tmp_path / "other", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("*.zarr")] == ["u0+4.zarr"]


def test_many_small_samples_are_packed_by_themselves(
    tmp_path: Path, cubes: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From so many small samples on, files are shared without being asked; other shapes get files of their own."""
    np.save(tmp_path / "raw/odd.npy", np.zeros((4, 4, 4), "i2"))
    monkeypatch.setattr(planning, "MANY", 5)
    monkeypatch.setattr(planning, "FILE_AIM", 2 * 12 * 8 * 10 * 2)
    report = convert(tmp_path / "raw", tmp_path / "out")
    volumes = sorted(path.name for path in (tmp_path / "out").glob("*.zarr"))
    assert volumes[0] == "odd.zarr"
    assert all("+" in name for name in volumes[1:-1])
    assert len(volumes) < 5
    assert Catalog.read(report.catalog).samples == ("odd", *cubes)


@pytest.mark.long
def test_many_volumes_are_spread_over_folders(
    tmp_path: Path, cubes: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder holds more volumes than a file system lists quickly."""
    monkeypatch.setattr(planning, "FOLDER_ENTRIES", 4)
    for _ in range(2):
        report = convert(tmp_path / "raw", tmp_path / "out")
    assert len(report.skipped) == 5
    assert not list((tmp_path / "out").glob("*.zarr"))
    assert len(list((tmp_path / "out").glob("??/u?.zarr"))) == 5
    data = voxload.VolumeDataset(report.catalog)
    np.testing.assert_array_equal(data[3][0].numpy()[0], cubes["u3"])
    data.close()


def test_wrong_splits_are_refused(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """Nothing of a cube is left out: extents that do not divide it are a mistake of the call."""
    assert cubes
    with pytest.raises(UsageError, match="found 5,4,5, expected divisors of the cube's extents, 12,8,10"):
        convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(split=(5, 4, 5)))
    with pytest.raises(UsageError, match="--split"):
        ConvertOptions(split=(0, 4, 5))


def test_volumes_of_one_sample_have_one_extent(tmp_path: Path) -> None:
    """No box could be cut alike from both: refused before any is converted, and one of them alone is taken."""
    np.savez(tmp_path / "u.npz", density=np.zeros((8, 8, 8), "f4"), mask=np.zeros((4, 8, 8), "u1"))
    with pytest.raises(UsageError, match=r"sample 'u': .*density \(8, 8, 8\), mask \(4, 8, 8\).*--dataset"):
        convert(tmp_path / "u.npz", tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))
    report = convert(tmp_path / "u.npz", tmp_path / "out", options=ConvertOptions(hints=Hints(datasets=("mask",))))
    assert report.converted == ("u",)


def test_a_window_beyond_what_is_stored_is_refused(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """A file that was replaced by a smaller one is not read as if nothing were wrong."""
    report = convert(tmp_path / "raw/u0.npy", tmp_path / "out", options=ConvertOptions(split=(6, 8, 10)))
    np.save(tmp_path / "raw/u0.npy", cubes["u0"][:6])
    convert(tmp_path / "raw/u0.npy", tmp_path / "other")
    (tmp_path / "out/u0.zarr").rename(tmp_path / "away")
    (tmp_path / "other/u0.zarr").rename(tmp_path / "out/u0.zarr")
    data = voxload.VolumeDataset(report.catalog)
    with pytest.raises(DataError, match=r"window .*found a stored volume of \(6, 8, 10\)"):
        data[1]
    data.close()


@settings(deadline=None, max_examples=60)
@given(data=st.data(), dtype=st.sampled_from(["i1", "u2", "i2", "i4", "u8", "f2", "f4", "f8", "?"]))
def test_figures_equal_numpys(data: st.DataObject, dtype: str) -> None:
    """Counts, extremes, mean, deviation and histogram are numpy's, of the whole and of merged parts."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    draw = np.random.default_rng(seed)
    values = draw.normal(0, 10 ** draw.uniform(-2, 2), draw.integers(1, 10000))
    voxels = (
        (np.abs(values) if dtype in {"u2", "u8", "?"} else values)
        .clip(*((-120, 120) if dtype in {"i1", "?"} else (-3e4, 3e4)))
        .astype(dtype)
    )
    if voxels.dtype.kind == "f":
        voxels[draw.random(voxels.shape) < 0.1] = np.nan
        voxels[draw.random(voxels.shape) < 0.1] = np.inf
        voxels[draw.random(voxels.shape) < 0.1] = -0.0
    whole = total_of(count_channels(voxels[np.newaxis]))
    cuts = sorted(draw.integers(0, len(voxels), 3).tolist())
    parts = StatisticsSum()
    for part in np.split(voxels, cuts):
        parts.add(count_channels(part[np.newaxis])[0])
    wide = voxels.astype("f8")
    finite = wide[np.isfinite(wide)]
    for found in (whole, parts.total()):
        assert found.nan_count == np.isnan(wide).sum()
        assert found.inf_count == np.isinf(wide).sum()
        assert found.count == finite.size
        edges, counts = found.histogram()
        if finite.size:
            assert (found.minimum, found.maximum) == (finite.min(), finite.max())
            assert found.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12)
            assert found.std == pytest.approx(finite.std(), rel=1e-10, abs=1e-12)
            np.testing.assert_array_equal(np.histogram(finite, edges)[0], counts)
        assert sum(counts) == finite.size


@pytest.mark.parametrize("split", [None, (6, 8, 5)])
def test_the_catalogue_has_numpys_figures(tmp_path: Path, split: tuple[int, int, int] | None) -> None:
    """A catalogue's statistics are those of each sample's voxels, and pandas and duckdb read them."""
    volume = np.random.default_rng(0).lognormal(0, 2, (3, 12, 8, 10)).astype("f4")
    volume[1, :6, 3] = np.nan
    np.save(tmp_path / "x.npy", volume)
    report = convert(
        tmp_path / "x.npy", tmp_path / "out", options=ConvertOptions(hints=Hints("CDHW"), split=split, chunks=(3, 4, 5))
    )
    catalog = Catalog.read(report.catalog)
    for sample in catalog.samples:
        entry = catalog.entry(sample, "volume")
        start = entry.window or (0, 0, 0)
        part = volume[(slice(None), *(slice(lo, lo + n) for lo, n in zip(start, entry.shape[1:], strict=True)))]
        found = catalog.summary(sample, "volume")
        assert found is not None
        for figures, voxels in zip((found.whole, *found.channels), (part, *part), strict=True):
            wide = voxels.astype("f8")
            assert (figures.count, figures.nan_count) == (np.isfinite(wide).sum(), np.isnan(wide).sum())
            assert figures.mean == pytest.approx(np.nanmean(wide), rel=1e-12)
            assert figures.std == pytest.approx(np.nanstd(wide), rel=1e-12)
            assert (figures.min, figures.max) == (np.nanmin(wide), np.nanmax(wide))
        finite = part[np.isfinite(part)]
        np.testing.assert_array_equal(np.histogram(finite, found.edges)[0], found.histogram)
    means = pd.read_parquet(report.catalog)["statistics"].map(lambda row: row["mean"]).tolist()
    rows = (
        duckdb.read_parquet(str(report.catalog)).project("statistics.mean, statistics.channels[1].nan_count").fetchall()
    )
    assert means == [row[0] for row in rows] == [catalog.summary(s, "volume").whole.mean for s in catalog.samples]  # type: ignore[union-attr] # as above


@pytest.mark.long
def test_normalisation_by_the_catalogue(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """Voxels are brought to mean 0 and deviation 1 over all samples without reading one; what is unknown is refused."""
    report = convert(tmp_path / "raw", tmp_path / "out", options=ConvertOptions(split=(6, 4, 5)))
    whole = np.stack(list(cubes.values())).astype("f8")
    step = voxload.transforms.standardize_by(report.catalog.parent)
    assert step.mean == pytest.approx((whole.mean(),), rel=1e-12)
    assert step.std == pytest.approx((whole.std(),), rel=1e-12)
    with pytest.raises(NotFoundError, match="no volume 'full'"):
        voxload.transforms.standardize_by(report.catalog, "full")
    Catalog(Catalog.read(report.catalog).table.drop_columns(["statistics"]), tmp_path).write(tmp_path / "bare.parquet")
    with pytest.raises(DataError, match="40 samples without statistics"):
        voxload.transforms.standardize_by(tmp_path / "bare.parquet")


@pytest.mark.long
def test_targets_from_side_cars(tmp_path: Path, cubes: dict[str, Array]) -> None:
    """Targets come from a table, from one in each folder, or from a mapping; a sample without any is named."""
    raw, table = tmp_path / "raw", tmp_path / "params.csv"
    table.write_text("sample,omega_m\n" + "".join(f"{name},0.{number}\n" for number, name in enumerate(cubes, 1)))
    mapping = {name: {"omega_m": number / 10} for number, name in enumerate(cubes, 1)}
    for number, targets in enumerate((table, mapping)):
        report = convert(raw, tmp_path / f"out{number}", options=ConvertOptions(targets=targets))  # type: ignore[arg-type] # either
        catalog = Catalog.read(report.catalog)
        assert [catalog.entry(name, "volume").targets for name in cubes] == [
            {"omega_m": number / 10} for number in range(1, 6)
        ]
    table.write_text("sample,omega_m\nu0,0.1\n")
    with pytest.raises(UsageError, match="u1"):
        convert(raw, tmp_path / "no", options=ConvertOptions(targets=table))
    for folder, value in itertools.product("ab", [0.5]):
        (raw / folder).mkdir()
        np.save(raw / folder / "x.npy", cubes["u0"])
        (raw / folder / "meta.yaml").write_text(f"namePar: [omega_m]\nunitPar: [{value + (folder == 'b')}]\n")
    with pytest.raises(NotFoundError, match=r"no meta\.yaml beside .*u0\.npy or above it"):
        convert(raw, tmp_path / "no", options=ConvertOptions(targets=Path("meta.yaml")))
    for name in cubes:
        (raw / f"{name}.npy").unlink()
    report = convert(raw, tmp_path / "folders", options=ConvertOptions(targets=Path("meta.yaml")))
    catalog = Catalog.read(report.catalog)
    assert [catalog.entry(name, "volume").targets["omega_m"] for name in ("a_x", "b_x")] == [0.5, 1.5]


@pytest.mark.parametrize("stored", StoredFormat)
def test_a_volume_that_samples_share_is_no_source(tmp_path: Path, stored: StoredFormat) -> None:
    """Converted again it would become one sample, a row of others; a volume of one sample is converted."""
    for number in range(3):
        np.save(tmp_path / f"x{number}.npy", np.full((4, 4, 4), number, "<i2"))
    packed = convert(tmp_path, tmp_path / "packed", options=ConvertOptions(format=stored, pack=Packing.ALWAYS))
    volume = next(packed.catalog.parent.glob(f"*{stored.suffix}"))
    with pytest.raises(UsageError, match=r"3 samples share.*convert the original files"):
        convert(volume, tmp_path / "out")
    alone = convert(tmp_path / "x1.npy", tmp_path / "alone", options=ConvertOptions(format=stored))
    again = convert(next(alone.catalog.parent.glob(f"*{stored.suffix}")), tmp_path / "again")
    assert Catalog.read(again.catalog).samples == ("x1",)
