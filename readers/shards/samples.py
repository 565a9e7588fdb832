"""Samples of a shard: its members, grouped as WebDataset does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from voxload.errors import DataError
from voxload.files.limits import MEMBERS
from voxload.readers.shards.members import Member, members, opened
from voxload.readers.shards.names import SampleName, split_member


@dataclass(frozen=True, slots=True)
class ShardSample:
    """One sample."""

    name: SampleName
    """With the place of its first member."""
    members: dict[str, Member]
    """By extension."""


def samples_of(shard: str) -> Iterator[ShardSample]:
    """Yield the samples of a shard, in their order; its headers are read, and nothing else.

    Raises DataError where a sample comes twice, where one has two members of an extension, and as `members` does.
    """
    seen: set[str] = set()
    with closing(opened(shard)) as archive:
        current: ShardSample | None = None
        for count, member in enumerate(members(archive, shard), 1):
            MEMBERS.check(shard, count, "members")
            key, extension = split_member(member.name)
            if current is None or key != current.name.key:
                if current is not None:
                    yield current
                if key in seen:
                    raise _odd(shard, key, "twice, with others in between")
                seen.add(key)
                current = ShardSample(SampleName(shard, key, member.at), {})
            if extension in current.members:
                raise _odd(shard, key, f"two members {extension!r}")
            current.members[extension] = member
        if current is not None:
            yield current


def _odd(shard: str, key: str, found: str) -> DataError:
    return DataError(
        f"{shard}, sample {key!r}",
        found=found,
        expected="the members of a sample one behind the other, one of each kind",
        remedy="write the archive anew, sorted by name: tar --sort=name",
    )
