"""Facts: what the data set of a run is, as plain values for the document."""

from __future__ import annotations

from typing import Any

from voxload.benchmark.datafiles import DataFiles
from voxload.benchmark.loaders.protocol import Task
from voxload.readers.registry import open_reader


def data_facts(task: Task, files: DataFiles) -> dict[str, Any]:
    """Return facts of the samples, from the first of them and the sizes of all files; opens one sample."""
    reader = open_reader(task.data.locations(0)[0])
    try:
        info = reader.describe()
    finally:
        reader.close()
    count = len(task.data)
    return {
        "location": task.workload.samples.location,
        "samples": count,
        "shape": list(info.shape),
        "axes": info.axes,
        "dtype": info.native_dtype.str,
        "format": info.format,
        "chunks": None if info.chunks is None else list(info.chunks),
        "shards": None if info.shards is None else list(info.shards),
        "codecs": list(info.codecs),
        "sample_bytes": info.decoded_bytes,
        "bytes": info.decoded_bytes * count,
        "files": len(files.files),
        "remote_volumes": files.remote,
        "stored_bytes": files.nbytes,
    }
