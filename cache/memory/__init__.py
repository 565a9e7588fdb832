"""The memory tier: blocks in a file in shared memory, which its owner writes and all processes of the node read.

Blocks come in and go out by key. Read tier first, then layout, which has every byte.
"""

from voxload.cache.memory.attached import AttachedMemory as AttachedMemory
from voxload.cache.memory.tier import MemoryTier as MemoryTier
