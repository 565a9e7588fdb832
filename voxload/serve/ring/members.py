"""Members: how services of several nodes know of each other, by what the site has.

Who is there says so again and again, by a number that grows; who has not said another one for `PATIENCE` is gone, by
the clock of who looks: no two nodes need the same time. Where what they meet by is gone, the members of last time stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from voxload.errors import DataError, StorageError, UsageError

EVERY = 2.0
"""Seconds from one sign of life to the next."""
PATIENCE = 10.0
"""Seconds without another one, after which a member is gone."""
_LONGEST = 500
"""Characters of what a member says of itself."""


class Meeting(Protocol):
    """A place where members leave word; used by one thread. Methods raise OSError where it is gone."""

    def say(self, name: str, words: str) -> None:
        """Leave word under a name, in the place of what was said before."""
        ...

    def heard(self) -> Mapping[str, str]:
        """Return what all have left."""
        ...

    def leave(self, name: str) -> None:
        """Take back what was said under a name."""
        ...

    def close(self) -> None:
        """Use it no more."""
        ...


class DaskMeeting:
    """The metadata of a scheduler of Dask distributed; see `Meeting`.

    Parameters
    ----------
    address
        Of the scheduler, ``tcp://`` or ``tls://``; certificates are those of Dask's own configuration.

    Raises
    ------
    UsageError
        Where Dask is not installed.
    StorageError
        Where nobody answers there.
    """

    def __init__(self, address: str) -> None:
        try:
            distributed = import_module("distributed")
        except ImportError as error:
            raise UsageError(
                "--ring", found=str(error), expected="distributed", remedy="install voxload[cluster]"
            ) from error
        try:
            self._client: Any = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except OSError as error:
            raise StorageError(address, found=str(error), expected="a scheduler of Dask that answers") from error

    def say(self, name: str, words: str) -> None:
        """See Meeting."""
        self._client.set_metadata(["voxload-ring", name], words)

    def heard(self) -> Mapping[str, str]:
        """See Meeting."""
        found = self._client.get_metadata(["voxload-ring"], default={})
        return {str(name): str(words) for name, words in found.items() if words}

    def leave(self, name: str) -> None:
        """See Meeting."""
        self._client.set_metadata(["voxload-ring", name], "")

    def close(self) -> None:
        """See Meeting."""
        self._client.close(timeout=EVERY)


class StoreMeeting:
    """A store of torch.distributed, as a launcher's rendezvous has one; see `Meeting`.

    Parameters
    ----------
    host, port
        Of the store.

    Raises
    ------
    StorageError
        Where nobody answers there.
    """

    def __init__(self, host: str, port: int) -> None:
        distributed = import_module("torch.distributed")
        datetime = import_module("datetime")
        try:
            self._store: Any = distributed.TCPStore(
                host, port, is_master=False, timeout=datetime.timedelta(seconds=PATIENCE), wait_for_workers=False
            )
        except (RuntimeError, OSError) as error:
            raise StorageError(f"{host}:{port}", found=str(error), expected="a store of torch that answers") from error
        self._numbers: dict[str, int] = {}

    def say(self, name: str, words: str) -> None:
        """See Meeting."""
        try:
            if name not in self._numbers:
                self._numbers[name] = self._store.add("voxload-ring/count", 1) - 1
            self._store.set(f"voxload-ring/{self._numbers[name]}", json.dumps([name, words]))
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error

    def heard(self) -> Mapping[str, str]:
        """See Meeting."""
        try:
            count = self._store.add("voxload-ring/count", 0)
            keys = [f"voxload-ring/{number}" for number in range(count)]
            found = [json.loads(self._store.get(key)) for key in keys if self._store.check([key])]
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error
        return {str(name): str(words) for name, words in found if words}

    def leave(self, name: str) -> None:
        """See Meeting."""
        if name in self._numbers:
            self.say(name, "")

    def close(self) -> None:
        """See Meeting."""
        self._store = None


def meeting_at(text: str) -> Meeting:
    """Return what ``dask:tcp://scheduler:8786`` or ``torch:host:29500`` names.

    Raises UsageError where it is neither, StorageError where nobody answers there.
    """
    kind, _, place = text.partition(":")
    if kind == "dask" and "://" in place:
        return DaskMeeting(place)
    host, colon, port = place.rpartition(":")
    if kind == "torch" and colon and host and port.isdecimal():
        return StoreMeeting(host, int(port))
    raise UsageError("--ring", found=repr(text), expected="dask:tcp://SCHEDULER:PORT or torch:HOST:PORT")


@dataclass(frozen=True, slots=True)
class Member:
    """What a member says of itself."""

    location: str
    """Where it lends blocks, such as ``tls://10.0.0.7:40123``."""
    life: str
    """Another one whenever it begins."""
    beat: int
    """Grows."""
    reads: bool = True
    """Whether it reads for others."""

    def encode(self) -> str:
        """Return it as text."""
        return json.dumps([self.location, self.life, self.beat, self.reads])

    @classmethod
    def decode(cls, text: str) -> Member:
        """Return what text says; raises DataError where that is nothing of the kind."""
        try:
            location, life, beat, reads = json.loads(text[:_LONGEST])
        except (ValueError, TypeError) as error:
            raise DataError("member", found=repr(text[:_LONGEST]), expected="place, life and beat") from error
        if not all(map(isinstance, (location, life, beat, reads), (str, str, int, bool))):
            raise DataError("member", found=repr(text[:_LONGEST]), expected="place, life and beat")
        return cls(location, life, beat, reads)


class Roll:
    """Who is there, by what was heard and when; pure but for the time it is given. Used by one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Member, float]] = {}

    def hear(self, words: Mapping[str, str], now: float) -> dict[str, Member]:
        """Take in what all have said; return those that are there, by name."""
        known = {}
        for name, text in words.items():
            try:
                member = Member.decode(text)
            except DataError:  # whoever can write there can say anything
                continue
            before = self._seen.get(name)
            is_news = before is None or before[0] != member
            known[name] = (member, now if is_news or before is None else before[1])
        self._seen = known
        return {name: member for name, (member, seen) in known.items() if now - seen < PATIENCE}


def now() -> float:
    """Return seconds that only grow."""
    return time.monotonic()
