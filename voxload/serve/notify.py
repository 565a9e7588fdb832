"""Notify: what a service tells the service manager that started it, by sd_notify(3)'s protocol."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(words: str) -> None:
    """Say something, such as ``READY=1``, where somebody asked to be told (Type=notify); else nothing happens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path.startswith(("/", "@")):
        address = "\0" + path[1:] if path.startswith("@") else path
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.sendto(words.encode(), address)
