"""Asking: what a service is asked by people and programs, that are no jobs."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from voxload.errors import DataError, StorageError
from voxload.serve.attachment import PATIENCE, entered
from voxload.serve.protocol.bulk import taken
from voxload.serve.protocol.messages import OF_SERVICE, VERSIONS, Figures, Hello, Look, Refused, build, decoded, encoded


def figures(path: Path) -> dict[str, Any]:
    """Return what a service keeps, what it read, and who is connected, as plain values.

    Raises
    ------
    NotFoundError
        Where nobody listens there.
    StorageError
        Where the service refuses, does not answer, or is another user's; DataError where it speaks another language.
    """
    packets, welcome = entered(path, Hello(*VERSIONS, build(), "status"))
    with closing(packets):
        try:
            packets.send(encoded(Look()))
            while (packet := packets.receive()) is not None:
                with closing(packet):
                    answer = decoded(packet.words, OF_SERVICE)
                    if isinstance(answer, Figures) and packet.descriptors:
                        found: dict[str, Any] = json.loads(taken("figures", packet.descriptors[0]))
                        return {"boot": welcome.boot, "build": welcome.build, **found}
                    if isinstance(answer, Refused):
                        raise StorageError(os.fspath(path), found=answer.reason, remedy=answer.remedy)
        except OSError as error:
            found_words = f"no answer in {PATIENCE:.0f} s" if isinstance(error, TimeoutError) else str(error)
            raise StorageError(os.fspath(path), found=found_words, expected="a service that answers") from error
        except ValueError as error:
            raise DataError("figures", found=str(error), expected="JSON") from error
    raise StorageError(os.fspath(path), found="the end of the connection", expected="an answer")
