"""ReaderTeam: a loader's reader threads in a process of their own, as the loader has them.

Rules of this file:

1. Until the process takes orders, and where a batch does not fit its slot, the loader's own threads read.
2. A process that ends before it was told to is begun again, once, with a warning; what it had under way is read by
   the loader's own threads meanwhile. After the second time each batch raises an error that names it.
3. A batch that nobody wants keeps its slot until the process has said that it writes there no more.
"""

from __future__ import annotations

import copy
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from voxload.data.dataset import VolumeDataset
from voxload.errors import InternalError, UsageError, VoxloadError
from voxload.loader.helper.memory import SharedSlots
from voxload.loader.helper.messages import (
    Answer,
    Broken,
    Cancelled,
    Made,
    Read,
    Ready,
    Refused,
    SlotMade,
    SlotsGone,
    Team,
)
from voxload.loader.helper.process import ReaderProcess
from voxload.loader.reading.batch_read import BatchRead
from voxload.loader.reading.staging import BatchLayout
from voxload.readers.settings import ReaderSettings

_AGAIN = 1
"""How often a process that was killed is begun again."""


@dataclass(slots=True)
class _State:
    """What the thread that hears the process shares with the loader; it keeps nothing of that."""

    task: bytes
    """The first message."""
    read_here: Callable[[BatchRead], None]
    """Lets the loader's own threads read a batch."""
    tell_room: Callable[[], None]
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    """Taken again by a finaliser in the middle of a call."""
    process: ReaderProcess | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    """Set while the process takes orders."""
    is_over: bool = False
    again: int = _AGAIN
    error: Callable[[], VoxloadError] | None = None
    """Makes what every batch raises."""
    reads: dict[int, BatchRead] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    """Batches of which the process was told that nobody wants them."""
    slots: set[int] = field(default_factory=set)
    """Those that the process has."""


class ReaderTeam:
    """Reads batches in another process; its methods are for one thread at a time, under the lock of the loader.

    Parameters
    ----------
    dataset
        What is read.
    layout
        Of a slot.
    slots
        Memory of the slots.
    threads
        Reader threads.

    Raises
    ------
    UsageError
        When the data set cannot be sent to another process.
    """

    def __init__(self, dataset: VolumeDataset, layout: BatchLayout, slots: SharedSlots, *, threads: int) -> None:
        self._slots = slots
        self._layout = layout
        self._numbers = 0
        self._state: _State | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._task = _task(dataset, layout, threads)

    def start(self, read_here: Callable[[BatchRead], None], tell_room: Callable[[], None]) -> None:
        """Begin the process; neither function may hold the loader."""
        self._state = _State(self._task, read_here, tell_room)
        self._state.process = ReaderProcess()
        self._thread = threading.Thread(target=_attend, args=(self._state,), name="voxload-helper", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end, self._state, self._pid).atexit = False

    def begin(self, read: BatchRead) -> bool:
        """Let the process read a batch that fits its slot; False where the loader has to."""
        state = self._state
        if state is None:
            return False
        if state.error is not None:
            if read.hand_over() is not None:
                read.broke(state.error())
            return True
        if not state.ready.is_set() or not all(type(index) is int for index in read.plan.indices):
            return False
        arrays = read.hand_over()
        if arrays is None:
            return True
        memory = self._slots.of(arrays[0])
        with state.lock:
            process = state.process
            if process is None or memory is None or not state.ready.is_set():
                read.take_back()
                return False
            self._numbers += 1
            state.reads[self._numbers] = read
            try:
                self._tell_gone(state, process)
                if memory.number not in state.slots:
                    process.tell(SlotMade(memory.number, memory.nbytes), file=memory.file)
                    state.slots.add(memory.number)
                process.tell(Read(self._numbers, memory.number, read.plan))
            except OSError:  # it is gone: who attends to it reads this batch elsewhere
                return True
        return True

    def tell_cancelled(self) -> None:
        """Tell the process which batches nobody wants any more."""
        state = self._state
        if state is None:
            return
        with state.lock:
            for number, read in state.reads.items():
                if read.is_cancelled and number not in state.cancelled and state.process is not None:
                    state.cancelled.add(number)
                    try:
                        state.process.tell(Cancelled(number))
                    except OSError:
                        return

    def close(self) -> None:
        """End the process, and wait for that."""
        if self._state is not None:
            _end(self._state, self._pid)
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join()

    def _tell_gone(self, state: _State, process: ReaderProcess) -> None:
        gone = []
        while not self._slots.gone.empty():
            gone.append(self._slots.gone.get_nowait())
        if gone:
            state.slots.difference_update(gone)
            process.tell(SlotsGone(tuple(gone)))


def _task(dataset: VolumeDataset, layout: BatchLayout, threads: int) -> bytes:
    own = copy.copy(dataset)
    own.item_transform = None  # done by the loop
    try:
        return pickle.dumps(Team(own, layout, threads, ReaderSettings.current()))
    except Exception as error:
        raise UsageError(
            'readers="process"',
            found=f"a data set that cannot be pickled: {error}",
            remedy='define what it is made of in a module, or use readers="threads"',
        ) from error


def _attend(state: _State) -> None:
    """Hear one process after the other; for a thread of its own."""
    while True:
        process = state.process
        if process is None:
            return
        with suppress(OSError):  # one that has ended is heard to have
            process.tell_bytes(state.task)
        while (answer := process.hear()) is not None:
            _heard(state, answer)
            del answer
        if not _is_begun_again(state, process, process.reap()):
            return


def _heard(state: _State, answer: Answer) -> None:
    if isinstance(answer, Ready):
        state.ready.set()
        return
    if isinstance(answer, Refused):
        why = answer.why
        state.error = lambda: UsageError(
            'readers="process"',
            found=f"a data set that another process cannot make: {why}",
            remedy='define what it is made of in a module that can be imported, or use readers="threads"',
        )
        return
    with state.lock:
        read = state.reads.pop(answer.number, None)
        state.cancelled.discard(answer.number)
    if read is None:
        return
    if isinstance(answer, Made):
        read.arrived(None if answer.targets is None else torch.from_numpy(answer.targets), answer.cost)
    elif isinstance(answer, Broken):
        read.broke(pickle.loads(answer.error))  # noqa: S301 - of a process that this one began
    elif read.take_back():
        state.read_here(read)
    if read.is_cancelled:
        state.tell_room()


def _is_begun_again(state: _State, process: ReaderProcess, how: str) -> bool:
    """Care for what a process that has ended had under way; tell whether there is another one."""
    with state.lock:
        state.ready.clear()
        state.process = None
        reads = list(state.reads.values())
        state.reads.clear()
        state.cancelled.clear()
        state.slots.clear()
        is_again = not state.is_over and state.error is None and state.again > 0
        if is_again:
            state.again -= 1
            try:
                state.process = ReaderProcess()
            except OSError as error:
                how, is_again = f"{how}; another one does not begin: {error}", False
        if not is_again and not state.is_over and state.error is None:
            pid = process.pid
            state.error = lambda: InternalError(
                f"reader process {pid}",
                found=how,
                expected="to read until the loader is closed",
                remedy='see the kernel\'s log for a want of memory, or use readers="threads"',
            )
    for read in reads:
        if state.error is not None:
            read.broke(state.error())
        elif not read.take_back():
            continue
        elif state.is_over:
            read.fail()  # as what threads have not begun when they end: who waits for it is told
        else:
            state.read_here(read)
    state.tell_room()
    if is_again:
        with suppress(RuntimeWarning):  # made an error, it would end this thread
            warnings.warn(
                f"reader process {process.pid}: {how}; another one is begun, and a second loss is an error",
                RuntimeWarning,
                stacklevel=1,
            )
    return is_again


def _end(state: _State, pid: int) -> None:
    """Let the process end; in a child of the loader's process it is not ours."""
    if os.getpid() != pid:
        return
    with state.lock:
        state.is_over = True
        if state.process is not None:
            state.process.end(at_once=not state.ready.is_set())
