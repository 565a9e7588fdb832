"""The disk tier: blocks in files of a folder, which outlive the job.

Blocks come in and go out by key. Read tier first, then folder, which says what several tiers in one folder owe each
other.
"""

from voxload.cache.disk.tier import DiskTier as DiskTier
