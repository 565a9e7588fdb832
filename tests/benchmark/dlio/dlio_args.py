"""What DLIO tells the plug-in, without DLIO."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from voxload.benchmark.dlio.settings import Options, Settings
from voxload.benchmark.dlio.supply import Plan


def args_of(**changed: Any) -> SimpleNamespace:
    """Return what DLIO's ConfigArguments has."""
    known = {
        "format": "hdf5",
        "storage_type": "local_fs",
        "num_samples_per_file": 1,
        "batch_size": 2,
        "batch_size_eval": 1,
        "read_threads": 2,
        "prefetch_size": 3,
        "preprocess_time": 0.0,
        "my_rank": 0,
        "comm_size": 1,
    }
    return SimpleNamespace(**known | changed)


def settings_of(**changed: Any) -> Settings:
    """Return the settings of a training's batches."""
    return Settings.of(args_of(**changed), is_training=True)


def plan_of(options: Options | None = None, **changed: Any) -> Plan:
    """Return how samples are loaded."""
    return Plan.of(settings_of(**changed), options or Options())
