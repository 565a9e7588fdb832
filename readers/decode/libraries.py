"""Libraries: the decoders' own C functions, in the shared libraries that came with imagecodecs."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import imagecodecs
import numpy as np

from voxload.core.library import function

_PLACES: tuple[tuple[str, str], ...] = (
    ("libdeflate", "libdeflate_alloc_decompressor"),
    ("libdeflate", "libdeflate_free_decompressor"),
    ("libdeflate", "libdeflate_zlib_decompress"),
    ("libdeflate", "libdeflate_gzip_decompress_ex"),
    ("libzstd", "ZSTD_createDCtx"),
    ("libzstd", "ZSTD_freeDCtx"),
    ("libzstd", "ZSTD_decompressDCtx"),
    ("libzstd", "ZSTD_isError"),
    ("liblz4", "LZ4_decompress_safe"),
    ("libblosc", "blosc_decompress_ctx"),
    ("libblosc", "blosc_getitem"),
    ("_bitshuffle", "bshuf_bitunshuffle"),
    ("_lzf", "lzf_decompress"),
    ("libsz", "SZ_BufftoBuffDecompress"),
    ("_bz2", "BZ2_bzDecompressInit"),
    ("_bz2", "BZ2_bzDecompress"),
    ("_bz2", "BZ2_bzDecompressEnd"),
    ("libblosc2", "blosc2_create_dctx"),
    ("libblosc2", "blosc2_free_ctx"),
    ("libblosc2", "blosc2_decompress_ctx"),
)
"""Library and function, in the order of ``struct decoders``."""


def _library(name: str) -> ctypes.CDLL | None:
    package = Path(imagecodecs.__file__).parent
    folder = package if name.startswith("_") else package.parent / "imagecodecs.libs"
    found = sorted(path for path in folder.glob(f"{name}[-.]*") if ".so" in path.name)
    return ctypes.CDLL(str(found[0])) if len(found) == 1 else None


@cache
def load() -> None:
    """Tell the core where the decoders are."""
    libraries = {name: _library(name) for name, _ in _PLACES}
    addresses = np.zeros(len(_PLACES), np.uint64)
    for number, (name, symbol) in enumerate(_PLACES):
        library = libraries[name]
        if library is not None and hasattr(library, symbol):
            addresses[number] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    function("set_decoders", "r")(addresses)
    _kept.extend(library for library in libraries.values() if library is not None)


_kept: list[ctypes.CDLL] = []
