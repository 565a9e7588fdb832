"""Waiting for zarr-python's coroutines in the thread that asks.

zarr-python's own functions leave an event loop and its threads behind for as long as the process lives: a process that
forks its workers later, as torch's loader does, would fork with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def waited(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what `coroutine` gives; no thread is left when it returns. Safe to call from many threads at once."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="voxload-zarr") as other:  # a notebook's thread, which runs a loop
        return other.submit(_run, coroutine).result()


async def listed(found: AsyncIterator[T]) -> list[T]:
    """Return all that an asynchronous iterator yields."""
    return [item async for item in found]


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.new_event_loop()  # not asyncio.run: that takes the caller's own loop away
    try:
        return loop.run_until_complete(coroutine)
    finally:
        try:
            # One read of a batch failed: the others end first, so that nothing of the store is in use any more.
            if others := asyncio.all_tasks(loop):
                loop.run_until_complete(asyncio.wait(others))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
