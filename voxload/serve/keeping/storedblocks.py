"""StoredBlocks: the blocks of a service as they are stored, read with the rights of its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from voxload.cache.protocol import BlockKey
from voxload.data.layout import FieldLayout
from voxload.data.units.keyed import KeyedUnits
from voxload.data.units.unit import Generations, Unit
from voxload.errors import DataError, VoxloadError
from voxload.readers.generation import Generation, block_generation, file_generation
from voxload.readers.handles import Handles
from voxload.readers.protocol import Missing, ReadCost, Volume
from voxload.readers.requests import block_cost, read_block
from voxload.readers.store import is_url
from voxload.serve.protocol.blocktable import ServedBlock, parsed, unit_of

_PARSED = 2**12
"""Lines whose blocks are remembered; a look at one takes some hundredths of a millisecond."""
_parsed = lru_cache(_PARSED)(parsed)


@dataclass(frozen=True, slots=True)
class BlockRead:
    """What came of reading a block."""

    key: BlockKey
    """Under which it is kept."""
    cost: ReadCost


class StoredBlocks:
    """Reads blocks by their numbers; see `StoredUnits`. Safe to use from many threads at once.

    Parameters
    ----------
    line
        Gives what is known of a block; see `blocktable`.
    """

    def __init__(self, line: Callable[[int], bytes]) -> None:
        self._line = line
        self._handles = {missing: Handles(missing) for missing in Missing}
        self._keyed = KeyedUnits(self, outlives=True, alike=False)

    def key(self, number: int) -> BlockKey | None:
        """Return under which key a block is kept as it is stored now; None where that cannot be told."""
        self._keyed.forget(number)
        with suppress(OSError, VoxloadError):
            return self._keyed.keys(number)[0] if self._keyed.is_lasting(number) else None
        return None

    def whole_file(self, number: int) -> str | None:
        """Return the path of the one regular file of this node's that all of a block lies in; None where it does not.

        Raises what looking at it raises.
        """
        block = _parsed(self._line(number))
        if is_url(block.location.path):
            return None
        alone, found = file_generation(block.location.path), self.generations(number)[0]
        whole = Generation.joined([alone])
        return block.location.path if whole is not None and found is not None and whole.name == found.name else None

    def layout(self, number: int, nbytes: int) -> FieldLayout:
        """Return type and shape of a block; raises DataError where it does not have so many bytes."""
        block = _parsed(self._line(number))
        if block.layout.nbytes != nbytes:
            raise DataError(str(block.location), found=f"{block.layout.nbytes} bytes", expected=f"{nbytes}, as said")
        return block.layout

    def read(self, number: int, out: Volume) -> BlockRead:
        """Fill `out`, of the block's layout, with it.

        Raises DataError where it may not be kept, or is not as it was said to be, and what the readers raise; `out` is
        undefined then.
        """
        block = _parsed(self._line(number))
        try:
            return self._read(number, block, out)
        except VoxloadError:  # of a file that was open before it was written anew, for one
            self._handles[block.missing].forget(block.location)
            return self._read(number, block, out)

    def _read(self, number: int, block: ServedBlock, out: Volume) -> BlockRead:
        self._keyed.forget(number)
        found = self._keyed.read(number, (out,))
        if not found.is_sure or not self._keyed.is_lasting(number):
            raise DataError(
                str(block.location),
                found="voxels that were written a moment ago, or of which nothing tells whether they change",
                expected="voxels that are the same for all who read them",
            )
        return BlockRead(self._keyed.keys(number)[0], found.cost)

    def close(self) -> None:
        """Close all files."""
        for handles in self._handles.values():
            handles.close()

    def unit(self, number: int) -> Unit:
        """See StoredUnits."""
        return unit_of(_parsed(self._line(number)))

    def read_into(self, number: int, out: Sequence[Volume]) -> ReadCost:
        """See StoredUnits; raises DataError where the volume is of another type, or has other channels, than said."""
        block, (volume,) = _parsed(self._line(number)), out
        with self._handles[block.missing].lease(block.location) as reader:
            info = reader.describe()
            stored = FieldLayout((info.shape[0], *block.box.shape), info.native_dtype)
            if (stored.shape, stored.dtype) != (block.layout.shape, block.layout.dtype):
                found = f"{stored.dtype} {stored.shape}"
                raise DataError(str(block.location), found=found, expected=f"{block.layout.dtype} {block.layout.shape}")
            read_block(reader, block.box, volume, boundary=block.boundary)
            return block_cost(reader, block.box, boundary=block.boundary)

    def generations(self, number: int) -> Generations:
        """See StoredUnits."""
        block = _parsed(self._line(number))
        with self._handles[block.missing].lease(block.location) as reader:
            return (block_generation(reader, block.box, boundary=block.boundary),)
