"""Exchange: which tenant has which block, and who may have it from them.

A block is given to who shows its file, opened for reading: the kernel has let them, as it would let them read it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import dataclass

from voxload.errors import DataError
from voxload.serve.tenancy.identity import Identity

_O_PATH = getattr(os, "O_PATH", 0o10000000)
_BLOCKS = 2**20
"""Blocks that are remembered of a tenant, at most; of more nothing is known here."""
_DIGEST = 32
"""Characters of a key's digest."""


@dataclass(frozen=True, slots=True)
class File:
    """A file, whatever its name."""

    device: int
    inode: int


def shown(descriptor: int) -> File:
    """Return the file of a descriptor that proves a right to read it; raises DataError where it proves none.

    One that was opened for its place alone (O_PATH) needs no right to what is in it, and one to write only another one.
    """
    flags, status = fcntl.fcntl(descriptor, fcntl.F_GETFL), os.fstat(descriptor)
    is_readable = not flags & _O_PATH and flags & os.O_ACCMODE in (os.O_RDONLY, os.O_RDWR)
    if not is_readable or not stat.S_ISREG(status.st_mode):
        raise DataError("descriptor", found=f"flags {flags:#o}", expected="a regular file, opened to be read")
    return File(status.st_dev, status.st_ino)


class Exchange:
    """Not safe to use from several threads at once."""

    def __init__(self) -> None:
        self._files: dict[Identity, dict[str, File]] = {}
        self._who: dict[str, set[Identity]] = {}

    def has(self, tenant: Identity, digest: str, file: File) -> None:
        """Note that a tenant has a block of a file; raises DataError where that is no digest."""
        if len(digest) != _DIGEST or not set(digest) <= set("0123456789abcdef"):
            raise DataError("digest", found=repr(digest[:_DIGEST]), expected=f"{_DIGEST} hexadecimal digits")
        mine = self._files.setdefault(tenant, {})
        if digest in mine or len(mine) < _BLOCKS:
            mine[digest] = file
            self._who.setdefault(digest, set()).add(tenant)

    def lost(self, tenant: Identity, digest: str) -> None:
        """Note that a tenant does not have a block any more; nothing happens where it was not known to."""
        if self._files.get(tenant, {}).pop(digest, None) is not None:
            self._who[digest].discard(tenant)
            if not self._who[digest]:
                del self._who[digest]

    def gone(self, tenant: Identity) -> None:
        """Note that a tenant is gone."""
        for digest in list(self._files.get(tenant, ())):
            self.lost(tenant, digest)
        self._files.pop(tenant, None)

    def find(self, digest: str, file: File, *, besides: Identity) -> Identity | None:
        """Return who has a block of that very file; None where nobody has but who asks."""
        found = (one for one in self._who.get(digest, ()) if one != besides and self._files[one][digest] == file)
        return next(iter(sorted(found)), None)
