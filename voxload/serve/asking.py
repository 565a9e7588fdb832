"""Asking: what people and programs, that are no jobs, ask of a service."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np

from voxload.errors import DataError, StorageError
from voxload.prefetch.line import Ints
from voxload.serve.attachment import PATIENCE, entered
from voxload.serve.protocol.blocktable import MOST, ServedBlock, table
from voxload.serve.protocol.bulk import lent, taken
from voxload.serve.protocol.messages import (
    OF_SERVICE,
    VERSIONS,
    Blocks,
    Clear,
    Done,
    Drain,
    Figures,
    Hello,
    Keep,
    Limit,
    Look,
    Message,
    Refused,
    Renew,
    Renewed,
    build,
)
from voxload.serve.protocol.packets import PacketSocket
from voxload.serve.protocol.wire import decoded, encoded


def figures(path: Path) -> dict[str, Any]:
    """Return what a service keeps, what it read, and who is connected, as plain values.

    Raises
    ------
    NotFoundError
        Where nobody listens there.
    StorageError
        Where the service refuses, does not answer, or is another user's; DataError where it speaks another language.
    """
    with Visit(path, "status") as visit:
        return visit.figures()


class Visit:
    """A connection to a service over which things are asked, one after the other; used by one thread.

    Every method raises StorageError where the service refuses or does not answer, DataError where it speaks another
    language.

    Parameters
    ----------
    path
        Of its socket.
    name
        What people are shown meanwhile.

    Raises
    ------
    NotFoundError
        Where nobody listens there; StorageError and DataError as above, and where it is another user's.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._packets, self._welcome = entered(path, Hello(*VERSIONS, build(), name))

    def figures(self) -> dict[str, Any]:
        """Return what it keeps, what it read, and who is connected, as plain values."""
        return {"boot": self._welcome.boot, "build": self._welcome.build, **self._asked(Look(), Figures)[1]}

    def keep(self, name: str, blocks: Sequence[ServedBlock], uses: Ints, *, seconds: float = 0.0) -> int:
        """Let blocks be read and kept near, whoever uses them; return how many uses were said.

        Parameters
        ----------
        name
            By which they are let go.
        blocks
            Each once.
        uses
            Places in `blocks`, in the order in which they are of use: where there is no room for all, the first ones
            are kept.
        seconds
            For which; 0 for as long as the service runs.
        """
        for start in range(0, len(blocks), MOST):
            part = blocks[start : start + MOST]
            self._say(Blocks(len(part)), table(part))
        answer, _ = self._asked(Keep(name, len(uses), seconds), Done, np.asarray(uses, "<i8").tobytes())
        return answer.count if isinstance(answer, Done) else 0

    def let_go(self, name: str) -> None:
        """Keep no more what was kept by a name."""
        self._asked(Keep(name, 0), Done)

    def clear(self) -> int:
        """Let all be forgotten that no job foresees and nobody wants kept; return how many blocks that were."""
        answer, _ = self._asked(Clear(), Done)
        return answer.count if isinstance(answer, Done) else 0

    def limit(self, memory: int, *, user: int = -1, share: float = 1.0) -> None:
        """Let no more than so many bytes of its memory be used: by all, or of a service for all users by one of them.

        `share` is that user's part of the reads, beside those of others.
        """
        self._asked(Limit(memory, user, share), Done)

    def drain(self) -> int:
        """Let it end, and wait until what was in memory is on disk; return how many blocks lie there."""
        answer, _ = self._asked(Drain(), Done, is_long=True)
        return answer.count if isinstance(answer, Done) else 0

    def close(self) -> None:
        """Leave."""
        self._packets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say(self, message: Message, data: bytes | None = None) -> None:
        descriptors = () if data is None else (lent(message.kind, data),)
        try:
            self._packets.send(encoded(message), descriptors)
        except OSError as error:
            raise self._lost(error) from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _asked(
        self, message: Message, wanted: type[Message], data: bytes | None = None, *, is_long: bool = False
    ) -> tuple[Message, Any]:
        """Say something, and return the answer of a kind, with what it came with; wait for it as long as it takes."""
        self._say(message, data)
        is_renewed = True
        while True:
            try:
                answer, content = _received(self._packets, self._path)
            except TimeoutError as error:
                if not is_long or not is_renewed:
                    raise self._lost(error) from error
                is_renewed = False
                self._say(Renew(self._welcome.boot, self._welcome.session, self._welcome.generation))
                continue
            except StorageError:
                raise
            except OSError as error:
                raise self._lost(error) from error
            is_renewed |= isinstance(answer, Renewed)
            if isinstance(answer, Refused):
                raise StorageError(os.fspath(self._path), found=answer.reason, remedy=answer.remedy)
            if isinstance(answer, wanted):
                return answer, content

    def _lost(self, error: OSError) -> StorageError:
        found = f"no answer in {PATIENCE:.0f} s" if isinstance(error, TimeoutError) else str(error)
        return StorageError(os.fspath(self._path), found=found, expected="a service that answers")


def _received(packets: PacketSocket, path: Path) -> tuple[Message, Any]:
    """Return what a service says next, with the JSON that came with it; raises OSError where it says nothing."""
    packet = packets.receive()
    if packet is None:
        raise StorageError(os.fspath(path), found="the end of the connection", expected="an answer")
    with closing(packet):
        answer = decoded(packet.words, OF_SERVICE)
        if not isinstance(answer, Figures):
            return answer, None
        if len(packet.descriptors) != 1:
            raise DataError("figures", found=f"{len(packet.descriptors)} descriptors", expected="one")
        try:
            return answer, json.loads(taken("figures", packet.descriptors[0]))
        except ValueError as error:
            raise DataError("figures", found=str(error), expected="JSON") from error
