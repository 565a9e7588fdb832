"""The error tree: one leaf per who is to blame.

==================  ===========================  =======================================
error               also a                       who has to act
==================  ===========================  =======================================
``UsageError``      ``ValueError``               the caller: an argument or a call is wrong
``NotFoundError``   ``FileNotFoundError``        the caller: what was named is not there
``DataError``       ``ValueError``               the owner of the data: a file is broken
``StorageError``    ``OSError``                  the owner of the storage: a read or write failed
``InternalError``   ``RuntimeError``             voxload's developers: please report it
==================  ===========================  =======================================

The command line turns the first two into exit status 2 and the others into 1.
"""

from __future__ import annotations

from typing import Any, Self

from voxload.text import shown


class VoxloadError(Exception):
    """Root of every error that voxload raises on purpose.

    Parameters
    ----------
    subject
        What the error is about: a file, an argument, a layer. A complete sentence when nothing else is given; empty
        where only the caller knows, who adds it with `within`.
    found, expected
        What was there and what should have been.
    remedy
        What the reader can do about it.

    Notes
    -----
    ``str(error)`` is one line, in which what is not printable is written as Python writes it: subjects and facts come
    out of data, and no terminal shall obey them. An instance survives pickling and torch's worker wrapper: both rebuild
    it from the finished message.
    """

    def __init__(self, subject: str = "", *, found: str = "", expected: str = "", remedy: str = "") -> None:
        facts = ", ".join(f"{label} {text}" for label, text in (("found", found), ("expected", expected)) if text)
        self._what = ": ".join(part for part in (subject, facts) if part)
        self._remedy = remedy
        super().__init__(shown(f"{self._what}; {remedy}" if remedy else self._what, keep="\n\t"))

    def within(self, subject: str, *, remedy: str) -> Self:
        """Return the same error as one of a part of `subject`; `remedy` serves where it has none of its own.

        Raise it ``from`` the inner one. Of an instance that was pickled the remedy is part of the message.
        """
        return type(self)(f"{subject}: {self._what}", remedy=self._remedy or remedy)


class UsageError(VoxloadError, ValueError):
    """The call is wrong: an argument, a combination of arguments, or what they ask for."""


class NotFoundError(UsageError, FileNotFoundError):
    """A path, dataset name or target that the caller named does not exist."""

    def __new__(cls, *args: Any, **_: Any) -> Self:
        """Make an instance as OSError does, whose room it needs; by the order of bases it would be ValueError's.

        Python itself knows better, but libraries that pickle exceptions, as Dask's does, call what is found by name.
        """
        return OSError.__new__(cls, *args)

    def __str__(self) -> str:
        """Return the message; ``OSError`` would wrap it into an errno form."""
        return str(self.args[0]) if self.args else ""


class DataError(VoxloadError, ValueError):
    """Stored data are not what their metadata promise: truncated, missing, corrupt or inconsistent."""


class StorageError(VoxloadError, OSError):
    """The storage refused a read or a write that should have worked: no space, no permission, I/O error."""

    def __str__(self) -> str:
        """Return the message; ``OSError`` would wrap it into an errno form."""
        return str(self.args[0]) if self.args else ""


class InternalError(VoxloadError, RuntimeError):
    """An invariant of voxload does not hold: a bug in voxload or a rank that fell out of step."""
