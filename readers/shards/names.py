"""Names: what a sample in a shard is called where others have a path.

``shard-000000.tar/birds/0017@20480`` is the sample ``birds/0017`` of a shard, whose first header is at that byte.
Without the byte the shard is looked through for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SUFFIX = ".tar"
_NAME = re.compile(r"(?P<shard>.*?\.tar)/(?P<key>.+?)(?:@(?P<at>\d{1,18}))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SampleName:
    """A sample in a shard."""

    shard: str
    """Path or URL of the archive."""
    key: str
    """What the names of its members have in common: all before the first dot of their last part."""
    at: int | None = None
    """Byte at which the header of its first member begins; None where that is not known."""

    def __str__(self) -> str:
        return f"{self.shard}/{self.key}" + ("" if self.at is None else f"@{self.at}")


@lru_cache(maxsize=2**10)
def parsed(path: str) -> SampleName | None:
    """Return the sample that a path names; None where it is no name of one. Pure: nothing is looked at.

    >>> parsed("a/b.tar/c/d@512")
    SampleName(shard='a/b.tar', key='c/d', at=512)
    >>> parsed("a/b.tar"), parsed("a/b.h5")
    (None, None)
    """
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    at = found["at"]
    return SampleName(found["shard"], found["key"], None if at is None else int(at))


def shown_name(path: str) -> str:
    """Return what a sample is called for people: without ``.tar`` and its place; other paths as they are.

    >>> shown_name("a/b.tar/c/d@512"), shown_name("a/b.h5")
    ('a/b/c/d', 'a/b.h5')
    """
    name = parsed(path)
    return path if name is None else f"{name.shard[: -len(SUFFIX)]}/{name.key}"


def shard_of(path: str) -> str:
    """Return the archive of a sample; empty where the path names none."""
    name = parsed(path)
    return "" if name is None else name.shard


def is_shard(path: str) -> bool:
    """Tell whether a path is named as an archive, all of it."""
    return path.endswith(SUFFIX)


def split_member(name: str) -> tuple[str, str]:
    """Return key and extension of a member, as WebDataset parts them: at the first dot of the last part.

    >>> split_member("birds/0017.seg.png"), split_member("readme")
    (('birds/0017', 'seg.png'), ('readme', ''))
    """
    folder, slash, last = name.rpartition("/")
    base, _, extension = last.partition(".")
    return f"{folder}{slash}{base}", extension
