"""What a workload and a user say to the plug-in for DLIO, and the order of its samples; without DLIO."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmark.dlio.dlio_args import args_of, settings_of
from voxload.benchmark.dlio.records import record_axes, records_of
from voxload.benchmark.dlio.settings import Options, Settings, refuse_preprocessing
from voxload.benchmark.dlio.supply import by_index, by_thread, in_turns
from voxload.errors import DataError, UsageError


def test_options_come_from_the_environment() -> None:
    """All options are read, and have defaults."""
    environ = {"HOME": "/root", "VOXLOAD_DLIO_SPATIAL": "1x2x4", "VOXLOAD_DLIO_HALO": "3"}
    environ |= {"VOXLOAD_DLIO_BOUNDARY": "periodic", "VOXLOAD_DLIO_STAGING": "4GiB"}
    assert Options.of(environ) == Options((1, 2, 4), 3, "periodic", "4GiB")
    assert Options.of({"HOME": "/root"}) == Options()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SPATIAL", "2x2"),
        ("SPATIAL", "0x1x1"),
        ("SPATIAL", "axbxc"),
        ("HALO", "-1"),
        ("BOUNDARY", "open"),
        ("HALLO", "1"),
    ],
)
def test_an_option_that_is_none_is_refused(name: str, text: str) -> None:
    """Names and values that are none are errors, not defaults."""
    with pytest.raises(UsageError):
        Options.of({f"VOXLOAD_DLIO_{name}": text})


def test_settings_are_those_of_training_or_evaluation() -> None:
    """Batches of both kinds have their own size; prefetch is shared out to threads as DLIO does."""
    args = args_of(read_threads=4, prefetch_size=5, comm_size=8, my_rank=3)
    found = Settings.of(args, is_training=True)
    assert (found.batch_size, found.threads, found.prefetch, found.rank, found.ranks) == (2, 4, 2, 3, 8)
    assert Settings.of(args, is_training=False).batch_size == 1
    assert settings_of(prefetch_size=0).prefetch == 2


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"format": "npz"}, "dataset.format=hdf5"),
        ({"format": "tfrecord"}, "DLIO's own loader"),
        ({"storage_type": SimpleNamespace(value="s3")}, "DLIO's own loader"),
        ({"odirect": True}, "DLIO's own loader"),
    ],
)
def test_what_voxload_does_not_read_is_refused(changed: dict[str, Any], remedy: str) -> None:
    """Nothing falls back to DLIO's readers."""
    with pytest.raises(UsageError, match=remedy):
        settings_of(**changed)


@pytest.mark.parametrize("time", [0.1, {"mean": 0.1}, {"type": "uniform", "min": 0.0, "max": 0.2}])
def test_preprocessing_is_refused(time: Any) -> None:
    """Numbers and distributions of DLIO's both count as preprocessing."""
    with pytest.raises(UsageError, match="preprocess_time"):
        refuse_preprocessing(args_of(preprocess_time=time))


@pytest.mark.parametrize("time", [0.0, 0, {}, {"mean": 0.0, "stdev": 0.0}])
def test_no_preprocessing_is_fine(time: Any) -> None:
    """Zero is none, however a release says it."""
    refuse_preprocessing(args_of(preprocess_time=time))


@pytest.mark.parametrize(
    ("changed", "axes"),
    [
        ({}, "DHW"),
        ({"format": "npy"}, "HWD"),
        ({"record_dims": [4, 5]}, "DHW"),
        ({"record_dims": [1, 4, 5]}, "DHW"),  # DLIO drops the 1 in HDF5
        ({"record_dims": [3, 4, 5]}, "CDHW"),
        ({"record_dims": [6, 4, 5], "num_dset_per_record": 2}, "CDHW"),
        ({"record_dims": [3, 4, 5], "format": "npy"}, "DHWC"),
        ({"record_dims": [1, 4, 5], "format": "npy"}, "DHWC"),
    ],
)
def test_axes_follow_from_what_dlio_writes(changed: dict[str, Any], axes: str) -> None:
    """Records of two and three axes get their letters, per format."""
    assert record_axes(settings_of(**changed)) == axes


@pytest.mark.parametrize(
    "changed",
    [{"record_dims": [9]}, {"record_dims": [2, 3, 4, 5]}, {"record_dims": [3, 4, 5], "num_samples_per_file": 2}],
)
def test_records_that_are_no_volumes_are_refused(changed: dict[str, Any]) -> None:
    """Other numbers of axes, and several volumes in a file, are errors."""
    with pytest.raises(UsageError):
        record_axes(settings_of(**changed))


def test_parts_of_a_record_are_fields_in_their_order() -> None:
    """Datasets are taken by number, and foreign ones left alone."""
    datasets = [f"records_{number}" for number in (10, 2, 0)] + ["others"]
    found = records_of(settings_of(), "a.hdf5", datasets)
    assert found.fields is not None
    assert list(found.fields) == ["records_0", "records_2", "records_10"]
    with pytest.raises(DataError, match="generate_data"):
        records_of(settings_of(), "a.hdf5", ["others"])


def test_lists_are_taken_in_turns() -> None:
    """Every list gives so many at a time, to its end."""
    assert in_turns([[0, 1, 2, 3], [4, 5, 6, 7]], 2) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert in_turns([[0, 1, 2], [4]], 2) == [0, 1, 4, 2]
    assert in_turns([], 2) == []


def test_numbers_become_files_and_places() -> None:
    """Both of DLIO's samplers end up as files and places in them."""
    assert by_index([5, 0, 2], ["a", "b", "c"], per_file=2) == [("c", 1), ("a", 0), ("b", 0)]
    listed = {1: [(4, "b", 0), (5, "b", 1)], 0: [(0, "a", 0), (1, "a", 1)]}
    assert by_thread(listed, 1) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
