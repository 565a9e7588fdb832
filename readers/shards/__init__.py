"""Shards: tar archives in WebDataset's layout, whose members are pictures, clips and arrays.

In comes the name of a sample in a shard, out goes a Reader of one of its members. Nothing is unpacked: a sample is
found by its place, and its members are read by ranges. Doors: the format, and samples, which lists those of a shard.
Read names first, then members. Source of the layout: WebDataset, "The WebDataset Format".
"""

from voxload.readers.shards.format import ShardFormat
from voxload.readers.shards.media import Header, is_volume
from voxload.readers.shards.members import Member, opened
from voxload.readers.shards.names import is_shard, shard_of, shown_name
from voxload.readers.shards.reader import member_header
from voxload.readers.shards.samples import ShardSample, samples_of

__all__ = [
    "Header",
    "Member",
    "ShardFormat",
    "ShardSample",
    "is_shard",
    "is_volume",
    "member_header",
    "opened",
    "samples_of",
    "shard_of",
    "shown_name",
]
