"""zarr-python: its default pipeline, its fused one where the installed version has one, and the zarrs pipeline."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import zarr
from zarr.core import codec_pipeline
from zarr.core.buffer import cpu

from bench.reading.contender import Entry, Job, Setting

FUSED = "FusedCodecPipeline"
HAS_FUSED = hasattr(codec_pipeline, FUSED)
HAS_ZARRS = importlib.util.find_spec("zarrs") is not None


class ZarrSession:
    """An array that was opened, and is read, under a configuration of zarr."""

    def __init__(self, job: Job, config: dict[str, Any], *, into: bool) -> None:
        self.out = job.out
        self._boxes = job.case.boxes
        self._config = config
        self._is_into = into
        self._context: AbstractContextManager[Any] | None = None
        with zarr.config.set(config):
            self._array = zarr.open_array(job.sample.path, mode="r")

    def prepare(self) -> None:
        """Do nothing: zarr reads its configuration while it reads, so that belongs to the read."""

    def read(self) -> None:
        """Read the boxes one after the other."""
        with zarr.config.set(self._config):
            for index, box in enumerate(self._boxes):
                if self._is_into:
                    target = cpu.NDBuffer.from_numpy_array(self.out[index])
                    self._array.get_basic_selection(box.slices, out=target)
                else:
                    self.out[index] = self._array[box.slices]

    def close(self) -> None:
        """Close the store."""
        self._array.store.close()


def _both(config: dict[str, Any]) -> tuple[Setting, ...]:
    """Return the two ways of filling a given buffer."""
    return (
        Setting("slice", lambda job: ZarrSession(job, config, into=False)),
        Setting("out=", lambda job: ZarrSession(job, config, into=True)),
    )


def entries(job: Job) -> Iterable[Entry]:
    """Return the pipelines of this version."""
    if job.sample.layout.family != "zarr":
        return
    yield Entry("zarr", "zarr-python", 0, (Setting("", lambda job: ZarrSession(job, {}, into=False)),))
    for threads in job.threads:
        words = f", {threads} thread{'s' * (threads > 1)}"
        if HAS_FUSED:
            fused = {
                "codec_pipeline.path": f"zarr.core.codec_pipeline.{FUSED}",
                "codec_pipeline.max_workers": threads,
            }
            yield Entry("zarr-fused", f"zarr-python fused{words}", threads, _both(fused))
        if HAS_ZARRS:
            rust = {
                "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
                "codec_pipeline.strict": True,
                "threading.max_workers": threads,
                "codec_pipeline.chunk_concurrent_maximum": threads,
            }
            yield Entry("zarrs", f"zarrs pipeline{words}", threads, _both(rust))
