"""Retries: which requests are sent again, how often, and how long one may take.

This is the only retry policy: those of obstore are switched off, so that every request is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from voxload.errors import StorageError
from voxload.readers.remote.objects import Traffic, TransientError, UnreachableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait for a storage, in seconds, before its fault is the caller's."""

    attempts: int = 16
    """Requests sent before giving up. A server that fails every third one fails one request this often in 40 million;
    with the waits below, 20 seconds of trouble are outlived."""
    first_attempts: int = 5
    """Of those, while nothing at an address has ever answered this process: after a second and a half it is said."""
    first_wait: float = 0.1
    """Before the second request; each further wait is twice as long."""
    longest_wait: float = 2.0
    """Between two requests. As much as the first wait is added at random, so that ranks do not return in step."""
    total: float = 120.0
    """From the first request on; none is repeated later, which matters when each ends in silence."""
    connect: float = 10.0
    """For a connection."""
    silence: float = 30.0
    """Without a byte from a server that is connected."""
    request: float = 600.0
    """For one request and its whole answer."""


def retried(call: Callable[[], T], *, subject: str, retries: RetryPolicy, traffic: Traffic) -> T:
    """Return what `call` returns, called again while it raises TransientError.

    Raises
    ------
    StorageError
        Naming `subject`, the number of attempts and the last one's fault, when none succeeded.
    """
    import stamina  # noqa: PLC0415 - of the extra `remote`, and who reads files need not wait for it

    sent = 0
    try:
        for attempt in stamina.retry_context(
            on=TransientError,
            attempts=retries.attempts,
            timeout=retries.total,
            wait_initial=retries.first_wait,
            wait_max=retries.longest_wait,
            wait_jitter=retries.first_wait,
        ):
            with attempt:
                sent += 1
                traffic.add(retries=int(sent > 1))
                result = _called(call, subject, is_last=sent >= retries.first_attempts)
    except TransientError as error:
        raise StorageError(
            subject,
            found=f"no answer in {sent} attempts, at last: {error}",
            remedy="the storage is unreachable or overloaded: check it, then try again",
        ) from error
    return result


def _called(call: Callable[[], T], subject: str, *, is_last: bool) -> T:
    """Return what `call` returns; raise StorageError where nothing answers, and a wrong address is as likely."""
    try:
        return call()
    except UnreachableError as error:
        if not is_last:
            raise
        raise StorageError(
            subject,
            found=f"nothing that answers: {error}",
            expected="a storage",
            remedy="check host and port, the endpoint in the environment, and that the storage runs",
        ) from error
