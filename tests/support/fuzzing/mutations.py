"""Mutations: one damaged copy of a volume's file, drawn from a seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.support.fuzzing.targets import SoundFile, Target

_BLOCKS = (1, 2, 4, 8, 16, 64, 512)
_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
"""What overflows somewhere."""
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Mutation:
    """What was done to which file."""

    kind: str
    """In words."""
    file: SoundFile
    """The file as it was."""
    data: bytes
    """The file as it is."""

    @property
    def is_covered(self) -> bool:
        """Whether every byte that changed lies under a checksum, or the file became shorter: that is seen too."""
        if len(self.data) < len(self.file.data) and self.file.data.startswith(self.data):
            return True
        length = min(len(self.data), len(self.file.data))
        old, new = (np.frombuffer(data, np.uint8, length) for data in (self.file.data, self.data))
        changed = np.flatnonzero(old != new).tolist()
        return bool(changed) and all(map(self.file.is_covered, changed))


def draw(target: Target, generator: Generator) -> Mutation:
    """Damage one file of `target`; metadata more often than their share of bytes."""
    while True:
        file = _pick(target, generator)
        kind = _KINDS[int(generator.integers(len(_KINDS)))]
        data = kind(file, generator)
        if data != file.data:
            return Mutation(f"{kind.__name__.strip('_')} of {file.name}", file, data)


def _pick(target: Target, generator: Generator) -> SoundFile:
    metadata = [file for file in target.files if all(region.is_metadata for region in file.regions)]
    if metadata and generator.random() < 0.4:
        return metadata[int(generator.integers(len(metadata)))]
    return target.files[int(generator.integers(len(target.files)))]


def _place(file: SoundFile, generator: Generator) -> int:
    """Draw a byte, half of the time one of the metadata."""
    regions = [region for region in file.regions if region.is_metadata]
    if not regions or generator.random() < 0.5:
        return int(generator.integers(len(file.data)))
    sizes = np.array([region.stop - region.start for region in regions])
    region = regions[int(generator.choice(len(regions), p=sizes / sizes.sum()))]
    return int(generator.integers(region.start, region.stop))


def _cut(file: SoundFile, generator: Generator) -> bytes:
    """End anywhere, or close to where one part of the file ends and the next begins."""
    if generator.random() < 0.5:
        return file.data[: int(generator.integers(len(file.data)))]
    region = file.regions[int(generator.integers(len(file.regions)))]
    edge = region.start if generator.random() < 0.5 else region.stop
    return file.data[: max(0, edge + int(generator.integers(-2, 3)))]


def _flip(file: SoundFile, generator: Generator) -> bytes:
    data = bytearray(file.data)
    for _ in range(int(generator.integers(1, 9))):
        data[_place(file, generator)] ^= 1 << int(generator.integers(8))
    return bytes(data)


def _single_flip(file: SoundFile, generator: Generator) -> bytes:
    data = bytearray(file.data)
    data[_place(file, generator)] ^= 1 << int(generator.integers(8))
    return bytes(data)


def _block(generator: Generator) -> int:
    return _BLOCKS[int(generator.integers(len(_BLOCKS)))]


def _zero(file: SoundFile, generator: Generator) -> bytes:
    place, length = _place(file, generator), _block(generator)
    return _over(file.data, place, bytes(length))


def _fill(file: SoundFile, generator: Generator) -> bytes:
    place, length = _place(file, generator), _block(generator)
    return _over(file.data, place, b"\xff" * length)


def _copy(file: SoundFile, generator: Generator) -> bytes:
    source, length = _place(file, generator), _block(generator)
    return _over(file.data, _place(file, generator), file.data[source : source + length])


def _repeat(file: SoundFile, generator: Generator) -> bytes:
    place, length = _place(file, generator), _block(generator)
    return file.data[: place + length] + file.data[place:]


def _remove(file: SoundFile, generator: Generator) -> bytes:
    place, length = _place(file, generator), _block(generator)
    return file.data[:place] + file.data[place + length :]


def _number(file: SoundFile, generator: Generator) -> bytes:
    """Put a number there that overflows; in text, in place of another number."""
    value = _NUMBERS[int(generator.integers(len(_NUMBERS)))]
    if file.data[:1] == b"{" and (found := list(re.finditer(rb"-?\d+", file.data))):
        match = found[int(generator.integers(len(found)))]
        sign = b"-" if generator.random() < 0.2 else b""
        return file.data[: match.start()] + sign + str(value).encode() + file.data[match.end() :]
    width = int(generator.choice((1, 2, 4, 8)))
    order = "little" if generator.random() < 0.8 else "big"
    place = _place(file, generator) // width * width
    return _over(file.data, place, (value % 2 ** (8 * width)).to_bytes(width, order))


def _over(data: bytes, place: int, patch: bytes) -> bytes:
    return (data[:place] + patch + data[place + len(patch) :])[: len(data)]


_KINDS: tuple[Callable[[SoundFile, Generator], bytes], ...] = (
    *(_cut, _flip, _single_flip, _zero, _fill, _copy, _repeat, _remove, _number),
)
