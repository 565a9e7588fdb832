"""CF packing: attributes by which stored numbers stand for others, which are applied where asked for, else refused.

NetCDF-4 and Zarr files that follow the CF conventions store ``(value - add_offset) / scale_factor`` as small integers,
and ``_FillValue`` or ``missing_value`` where there is no value. A reader that knows nothing of it hands out numbers
that look right and are wrong.

Rule: an attribute that changes no number is no packing. That is a scale of 1, an offset of 0, a fill value of NaN,
which stands for itself, and ``_Unsigned`` where it says what the type says. Everything else is packing: a fill value
too, whether or not a voxel has it, because only a look at every voxel could tell.

Source: CF conventions 1.11, sections 2.5.1 and 8.1; NetCDF Users Guide, appendix A (attribute conventions).
"""

from __future__ import annotations

import base64
import binascii
import enum
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


class Packed(enum.StrEnum):
    """What to do about stored numbers that stand for others."""

    REFUSED = "refused"
    """Raise UsageError that names the attributes."""
    KNOWN = "known"
    """Say what they stand for where netCDF or xarray wrote them; else refuse them."""
    ANY = "any"
    """Say what they stand for, whoever wrote them."""

    @classmethod
    def parse(cls, decode: str | None) -> Packed:
        """Return what a data set's word for it means; raises UsageError on an unknown one."""
        if decode not in (None, "cf", "stored"):
            raise UsageError("decode", found=repr(decode), expected="'cf' or 'stored'")
        return cls.KNOWN if decode is None else cls.ANY


@dataclass(frozen=True, slots=True)
class Packing:
    """What stored numbers stand for: ``stored * scale + offset``, and nothing where one is a fill value."""

    scale: float = 1.0
    """What is multiplied with."""
    offset: float = 0.0
    """What is added then."""
    fills: tuple[float, ...] = ()
    """Stored numbers that stand for no value; NaN always does."""
    wraps: bool = False
    """Whether integers are of the other kind, signed or unsigned, than their type says."""


def decoded_type(stored: str) -> str:
    """Return the name, of numpy and of torch, of the floats that numbers of a stored type stand for.

    >>> decoded_type("int16"), decoded_type("float64")
    ('float32', 'float64')
    """
    return stored if stored == "float64" else "float32"


def packing_of(subject: str, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> Packing | None:
    """Return what the attributes make of stored numbers; None where they leave them as they are.

    Parameters as of `check_packing`. A fill value counts as it is stored, before ``_Unsigned`` is applied.

    Raises
    ------
    UsageError
        Naming an attribute that cannot be applied: no number where one is meant, or one that is no stored number's.
    """
    found = {name: attributes[name] for name in NAMES if name in attributes}
    packed = [name for name, value in found.items() if not _is_identity(name, value, dtype)]
    if not packed:
        return None
    scale, offset, wraps, fills = 1.0, 0.0, False, list[float]()
    for name in packed:
        numbers = None if name == UNSIGNED else _numbers(found[name], is_fill=name in FILLS)
        said = _text(found[name]) if name == UNSIGNED else None
        if name == UNSIGNED and said is not None and said.strip().lower() in ("true", "false"):
            wraps = True
        elif name in FILLS and numbers is not None and numbers.size and _are_stored(numbers, dtype):
            fills += [float(number) for number in numbers if not np.isnan(number)]
        elif name in (SCALE, OFFSET) and numbers is not None and numbers.size == 1 and np.isfinite(numbers[0]):
            scale, offset = (float(numbers[0]), offset) if name == SCALE else (scale, float(numbers[0]))
        else:
            raise UsageError(
                subject,
                found=f"the CF attribute {name} = {_shown(name, found[name])}, of numbers of {dtype}",
                expected="one finite number" if name in (SCALE, OFFSET) else "a value that such a number can have",
                remedy='mend the attribute, or say decode="stored" to read the numbers as they are stored',
            )
    return Packing(scale, offset, tuple(fills), wraps)


def _are_stored(numbers: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether these are numbers of a type, and exact in 64 bits of a float."""
    kept = numbers[~np.isnan(numbers)]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        is_inside = bool(((kept >= limits.min) & (kept <= limits.max) & (kept == np.floor(kept))).all())
        return is_inside and bool((kept.astype(np.float64) == kept).all())
    return dtype.kind == "f"


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
                'say decode="cf" to a VolumeDataset (voxload info --decode cf), or "stored" where they mean nothing, '
                'or store what is meant, as xarray.open_dataset(FILE).drop_encoding().to_zarr("decoded.zarr")'
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
