"""CF packing: attributes by which stored numbers stand for others, which are refused until they are applied.

NetCDF-4 and Zarr files that follow the CF conventions store ``(value - add_offset) / scale_factor`` as small integers,
and ``_FillValue`` or ``missing_value`` where there is no value. A reader that knows nothing of it hands out numbers
that look right and are wrong.

Rule: an attribute that changes no number is no packing. That is a scale of 1, an offset of 0, a fill value of NaN,
which stands for itself, and ``_Unsigned`` where it says what the type says. Everything else is refused: a fill value
too, whether or not a voxel has it, because only a look at every voxel could tell.

Source: CF conventions 1.11, sections 2.5.1 and 8.1; NetCDF Users Guide, appendix A (attribute conventions).
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError

SCALE, OFFSET, UNSIGNED = "scale_factor", "add_offset", "_Unsigned"
FILLS = ("_FillValue", "missing_value")
NAMES = (SCALE, OFFSET, *FILLS, UNSIGNED)
"""The attributes that are looked at."""
MOST_VALUES = 16
"""Values that an attribute of these may have; ``missing_value`` may list several."""
_SHOWN = 60
"""Characters of a value that a message shows."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An attribute that was not looked into, because of its type or its size."""

    what: str
    """What it is, for messages."""

    def __repr__(self) -> str:
        return self.what


def check_packing(subject: str, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
    """Refuse stored numbers that stand for others.

    Parameters
    ----------
    subject
        File and dataset, for the message.
    attributes
        The attributes, of which those in `NAMES` count: numbers, texts, sequences of them, or `Unread`.
    dtype
        Type of the stored numbers.

    Raises
    ------
    UsageError
        Naming each attribute that is more than the identity, and its value.
    """
    found = {name: attributes[name] for name in NAMES if name in attributes}
    packed = {name: value for name, value in found.items() if not _is_identity(name, value, dtype)}
    if packed:
        shown = ", ".join(f"{name} = {_shown(name, value)}" for name, value in packed.items())
        raise UsageError(
            subject,
            found=f"stored numbers that stand for others, by the CF attributes {shown}",
            expected="the numbers that are meant, for these attributes are not applied",
            remedy=(
                'store those, as by xarray.open_dataset(FILE).drop_encoding().to_zarr("decoded.zarr"), or remove the '
                "attributes where they mean nothing"
            ),
        )


def _is_identity(name: str, value: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether an attribute leaves every stored number as it is."""
    if name == UNSIGNED:
        text = _text(value)
        said = {"true": "u", "false": "i"}.get(text.strip().lower()) if text is not None else None
        return dtype.kind not in "iu" or said == dtype.kind
    numbers = _numbers(value, is_fill=name in FILLS)
    if numbers is None or not numbers.size:
        return False
    if name in FILLS:
        return bool(np.isnan(numbers).all())  # no voxel but NaN is NaN, whatever the type
    return bool((numbers == (1 if name == SCALE else 0)).all())


def _numbers(value: Any, *, is_fill: bool) -> npt.NDArray[Any] | None:
    """Return the few numbers of an attribute as floats; None where it is something else."""
    if isinstance(value, str):
        number = _number(value) if is_fill else None
        return None if number is None else np.array([number])
    if isinstance(value, Sequence) and len(value) > MOST_VALUES:
        return None
    try:
        numbers = np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths
        return None
    is_number = numbers.dtype.kind in "biuf" and numbers.size <= MOST_VALUES
    return numbers.ravel().astype(np.longdouble) if is_number else None


def _number(text: str) -> float | None:
    """Return a fill value that JSON holds as text: NaN by name, or eight bytes in base64, as xarray writes floats."""
    if text in ("NaN", "nan"):
        return float("nan")
    try:
        decoded = base64.b64decode(text, validate=True) if len(text) == len("AAAAAAAA+H8=") else b""
    except (binascii.Error, ValueError):
        return None
    return float(struct.unpack("<d", decoded)[0]) if len(decoded) == struct.calcsize("<d") else None


def _text(value: Any) -> str | None:
    """Return a text, or the one text of an array."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _shown(name: str, value: Any) -> str:
    """Return a value as a message has it, no longer than it may be."""
    if isinstance(value, str) and name in FILLS and (number := _number(value)) is not None:
        return repr(number)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > MOST_VALUES:
        return f"{len(value)} values"
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) and value.size <= MOST_VALUES else value
    text = repr(plain[0] if isinstance(plain, list) and len(plain) == 1 else plain)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
