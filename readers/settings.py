"""ReaderSettings: what holds for all reads of a process, so that another one may read alike."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.readers.chunks.chunkcache import chunk_cache, kept_chunks, set_chunk_cache, set_kept_chunks
from voxload.readers.storage.file import reads_directly, set_direct_reads
from voxload.readers.team import set_threads, team


def may_repeat() -> bool:
    """Tell whether reads may be made again as they were: through the page cache, and without a cache of chunks."""
    return not reads_directly() and chunk_cache() is None


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """See `set_threads`, `set_direct_reads`, `set_chunk_cache` and `set_kept_chunks`."""

    threads: int
    """Of one read."""
    is_direct: bool
    """Whether files are read past the page cache."""
    chunk_cache: int
    """Bytes of decoded chunks that are kept; 0 where none was asked for."""
    kept_chunks: int
    """Bytes of those that the core keeps else."""

    @classmethod
    def current(cls) -> ReaderSettings:
        """Return those of this process."""
        cache = chunk_cache()
        return cls(team().threads, reads_directly(), 0 if cache is None else cache.budget, kept_chunks())

    def apply(self) -> None:
        """Make them this process's; call it while nothing reads."""
        set_threads(self.threads)
        set_direct_reads(is_direct=self.is_direct)
        set_chunk_cache(self.chunk_cache)
        set_kept_chunks(self.kept_chunks)
