"""The process that runs plugins of libhdf5: a chunk comes in by one pipe, and its bytes go out by another.

It is run as a script and imports nothing of voxload. A plugin is called as libhdf5 calls it, but without libhdf5, which
believes whatever length comes of it: here that is compared with the length that is wanted.

Source: HDF5 2.0, H5Zpublic.h (H5Z_class2_t) and H5PLextern.h.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

import hdf5plugin

_REQUEST = struct.Struct("<IIQQ")
_REPLY = struct.Struct("<BQ")
_REVERSE = 0x0100
_SECONDS = 120
"""Past any limit of the process that asks: this one must not outlive it in a plugin that hangs."""
_ROOM = 2**29
_FOLD = 16
"""Memory that a plugin may take beyond what it decodes to, and how many times that."""
_BEHIND = 2**16
"""Zeros behind a chunk: what is read there of one that is cut short is no other chunk's."""
_FILTER = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_void_p),
)


class _Class(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encoder_present", ctypes.c_uint),
        ("decoder_present", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", _FILTER),
    )


_memory = ctypes.CDLL(None)
_memory.calloc.restype, _memory.calloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
_memory.free.restype, _memory.free.argtypes = None, (ctypes.c_void_p,)
_filters: dict[int, _Class] = {}


def find(number: int) -> _Class:
    """Return the filter of a number; raises ValueError where hdf5plugin has none."""
    if number not in _filters:
        names = {value: name for name, value in hdf5plugin.FILTERS.items()}
        path = hdf5plugin.get_config().registered_filters.get(names.get(number, ""))
        if path is None or path == "unknown":
            raise ValueError(f"hdf5plugin {hdf5plugin.version} has no filter {number}")
        library = ctypes.CDLL(path)
        library.H5PLget_plugin_info.restype = ctypes.POINTER(_Class)
        _filters[number] = library.H5PLget_plugin_info().contents
    return _filters[number]


def decode(number: int, values: bytes, stored: bytes, size: int) -> bytes:
    """Return the `size` bytes that a filter was given; raises ValueError when it gives others."""
    count = len(values) // 4
    held = ctypes.c_void_p(_memory.calloc(1, len(stored) + _BEHIND))
    if held.value is None:
        raise ValueError(f"no memory for {len(stored)} bytes")
    ctypes.memmove(held, stored, len(stored))
    room = ctypes.c_size_t(len(stored))
    parameters = (ctypes.c_uint * max(count, 1)).from_buffer_copy(values or bytes(4))
    undo = find(number).filter
    found = undo(_REVERSE, count, parameters, len(stored), ctypes.byref(room), ctypes.byref(held))
    if found != size or room.value < size:
        raise ValueError(f"{found} bytes instead of {size}")
    data = ctypes.string_at(held, size)
    _memory.free(held)
    return data


def limit(size: int, base: int) -> None:
    """Bound the memory and the time that a chunk may take."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = base + _ROOM + _FOLD * size
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most < 0 else min(wanted, most), most))
    signal.alarm(_SECONDS + size // 2**20)


def taken() -> int:
    """Return the memory that this process has now."""
    with open("/proc/self/status") as file:  # noqa: PTH123 - nothing is imported for it
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))


def serve(requests: int, replies: int) -> None:
    """Answer requests until their pipe is closed."""
    base = taken()
    while head := _read(requests, _REQUEST.size):
        number, count, length, size = _REQUEST.unpack(head)
        values, stored = _read(requests, 4 * count), _read(requests, length)
        limit(size, base)
        try:
            has_failed, answer = False, decode(number, values, stored, size)
        except (ValueError, MemoryError) as error:
            has_failed, answer = True, (str(error) or type(error).__name__).encode()
        signal.alarm(0)
        for part in (_REPLY.pack(has_failed, len(answer)), answer):
            left = memoryview(part)
            while left:
                left = left[os.write(replies, left) :]


def _read(pipe: int, length: int) -> bytes:
    """Return so many bytes; fewer only where the pipe was closed, which ends the process in the midst of a request."""
    parts: list[bytes] = []
    left = length
    while left:
        part = os.read(pipe, min(left, 2**20))
        if not part:
            if parts:
                sys.exit(0)
            return b""
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both: the other one decides
    own = os.dup(1)
    os.dup2(2, 1)  # plugins print
    serve(0, own)
