"""The helper process itself: maps slots, reads batches into them, and says so.

Rules of this file:

1. Orders come one after the other, to the first thread; others read. It ends when the loader's end of the sockets is
   closed, or the loader's process is gone while a child of that holds the sockets open.
2. Each batch is answered once: made, broken, or left alone. Nothing writes to its slot after that.
3. An interruption from the keyboard is the loader's to act upon.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

import torch

from voxload.loader.batch import Batch
from voxload.loader.helper.memory import mapped
from voxload.loader.helper.messages import (
    Answer,
    Broken,
    Cancelled,
    LeftAlone,
    Made,
    Order,
    Read,
    Ready,
    Refused,
    SlotMade,
    SlotsGone,
    Team,
    error_bytes,
)
from voxload.loader.reading.batch_read import BatchRead
from voxload.loader.reading.sample_reads import SpareBytes
from voxload.prefetch.execution.threadpool import DaemonThreadPool
from voxload.readers.protocol import Volume


class Helper:
    """Reads what it is told to.

    Parameters
    ----------
    connection
        To the loader.
    team
        What reads.
    """

    def __init__(self, connection: Connection, team: Team) -> None:
        self._connection = connection
        self._team = team
        self._pool = DaemonThreadPool(team.threads, "voxload-reader")
        self._slots: dict[int, list[Volume]] = {}
        self._reads: dict[int, BatchRead] = {}
        self._sending = threading.Lock()
        self._room = SpareBytes(0)  # what does not fit a slot is the loader's to read

    def obey(self, order: Order) -> None:
        """Do what an order says."""
        if isinstance(order, SlotMade):
            memory = mapped(recv_handle(self._connection), order.nbytes)
            self._slots[order.number] = self._team.layout.cut(memory)
        elif isinstance(order, SlotsGone):
            for number in order.numbers:
                self._slots.pop(number, None)
        elif isinstance(order, Read):
            self._begin(order)
        elif isinstance(order, Cancelled):
            read = self._reads.get(order.number)
            if read is not None:
                read.cancel()
                self.ended(order.number)

    def ended(self, number: int) -> None:
        """Say what became of a batch, once nothing writes to its slot; says it once."""
        read = self._reads.get(number)
        if read is None or not read.is_quiet or self._reads.pop(number, None) is None:
            return
        if read.is_cancelled:
            self.say(LeftAlone(number))
            return
        try:
            found = read.taken()
        except BaseException as error:  # noqa: BLE001 - raised to who waits for the batch
            self.say(Broken(number, error_bytes(error)))
            return
        if isinstance(found, Batch):
            self.say(Made(number, None if found.targets is None else found.targets.numpy(), found.cost))
        else:
            self.say(LeftAlone(number))

    def say(self, answer: Answer) -> None:
        """Tell the loader; where it is gone, this process is about to end."""
        try:
            with self._sending:
                self._connection.send(answer)
        except OSError:
            return

    def _begin(self, order: Read) -> None:
        layout = self._team.layout
        read = BatchRead(
            order.plan,
            self._team.dataset,
            self._slots[order.slot],
            fits=True,
            layout=layout.fields,
            room=self._room,
        )
        self._reads[order.number] = read
        for place in range(read.tasks):
            self._pool.post(_Task(self, read, order.number, place))


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of a batch, for a thread."""

    helper: Helper
    read: BatchRead
    number: int
    place: int

    def run(self) -> None:
        """Do it; tell where it was the last."""
        self.read.read(self.place)
        self.helper.ended(self.number)

    def cancel(self) -> None:
        """Nobody waits for it: the process ends."""


def main() -> None:
    """Read for the process that began this one, until it wants no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = 0
    try:
        _serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):  # the loader is gone
        pass
    except BaseException:  # noqa: BLE001 - told by the status, too
        traceback.print_exc()
        status = 1
    os._exit(status)  # reads that are under way are nobody's


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)  # reader threads are all there is to use
    message = connection.recv_bytes()
    try:
        team: Team = pickle.loads(message)  # noqa: S301 - of the process that began this one
    except Exception as error:  # noqa: BLE001 - whatever a data set's own classes raise
        connection.send(Refused(f"{type(error).__name__}: {error}"))
        return
    team.settings.apply()
    helper, wanted = Helper(connection, team), _Wanted(connection)
    helper.say(Ready())
    while wanted.wait():
        helper.obey(connection.recv())


class _Wanted:
    """Waits for orders, or for the end of who gives them."""

    def __init__(self, connection: Connection) -> None:
        self._orders = connection.fileno()
        self._poll = select.poll()
        self._poll.register(self._orders, select.POLLIN)
        self._parent = os.getppid()
        try:
            self._poll.register(os.pidfd_open(self._parent), select.POLLIN)
        except OSError:  # an old kernel: the sockets alone tell
            return

    def wait(self) -> bool:
        """Wait for an order; False when none will come."""
        found = dict(self._poll.poll())
        return self._orders in found and os.getppid() == self._parent
