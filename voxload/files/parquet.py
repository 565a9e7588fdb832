"""Parquet tables read without harm to how the process ends, nor to its memory.

A few bytes of Parquet can stand for any number of values: one run of a dictionary's first word a billion times. What
decoding takes is worked out first, of what the footer says of each column and of what its pages say of themselves:
Arrow believes both, and must not be given pages that say more than the footer.

Source: Apache Parquet file format 2.11: column chunks, page headers in Thrift's compact protocol.

ThriftReader: structures in Thrift's compact protocol, as far as Parquet's page headers need them. Source: Apache
Thrift, specification of the compact protocol.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from voxload.files.limits import TABLE
from voxload.files.regular import open_regular

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of a decoded value; those of other types say their lengths in the data, or are numbers into a dictionary."""
_NUMBER = 4
"""Bytes of a number into a dictionary, and of where a text begins."""
_LEVELS = 4
"""Bytes of a value's two levels, where it may be missing or is in a list."""
_HEADER_BYTES = 2**8
"""Bytes read to find a page's header; of a longer one so many more, until it ends."""
_MOST_HEADER = 2**20
_DICTIONARY, _DATA, _DATA_V2 = 2, 0, 3


def read_table(path: Path | str, *, without: Collection[str] = (), data: bytes | None = None) -> pa.Table:
    """Return the table of a Parquet file, whose page checksums are compared where it has them.

    Columns that are named in `without` are left out, and not looked at. With `data`, the file's bytes, nothing is
    opened, and `path` is its name for messages.

    The file is opened by Arrow, never by Python: Arrow's I/O threads outlive the call and let go of the file last.
    If that is a Python object while the interpreter shuts down, they wait for its lock, which ends the process
    with SIGABRT ("terminate called without an active exception"), one exit in eight on a small machine.

    Raises FileNotFoundError, IsADirectoryError, NotADirectoryError and other OSErrors of opening,
    pyarrow.ArrowException and OSError for what is no Parquet, DataError for what claims more values than it has or
    would take more memory than a table may, UsageError for a pipe or a device.
    """
    if data is None and Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # A file that is put into its place meanwhile is another one: what is looked at is what is read.
    with open_regular(path, buffering=0) if data is None else io.BytesIO(data) as own, _opened(own, data) as file:
        metadata = pq.read_metadata(file)
        check_size(path, metadata, file=own)
        columns = [_column(metadata, number) for number in range(metadata.num_columns)]
        # As numbers into a dictionary: a text that comes a million times is in memory once.
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        file.seek(0)
        with pq.ParquetFile(
            file, metadata=metadata, page_checksum_verification=True, read_dictionary=texts
        ) as columns_of:
            schema = metadata.schema.to_arrow_schema()
            if not without or len(set(schema.names)) < len(schema.names):
                return _in_full(path, columns_of.read(), schema)
            kept = pa.schema([field for field in schema if field.name not in without], schema.metadata)
            return _in_full(path, columns_of.read(columns=kept.names).select(kept.names), kept)


def _opened(own: IO[bytes], data: bytes | None) -> Any:
    """Return a file that is open, or bytes, for Arrow."""
    return pa.OSFile(f"/proc/self/fd/{own.fileno()}") if data is None else pa.BufferReader(data)


def check_size(
    path: Path | str, metadata: Any, *, groups: Iterable[int] | None = None, file: IO[bytes] | None = None
) -> None:
    """Refuse row groups of a file, all by default, that take more memory than a table may once they are decoded.

    Parameters
    ----------
    path
        The file.
    metadata
        Its footer, as pyarrow has it.
    groups
        Numbers of the row groups.
    file
        The file, where it is open; else it is opened.

    Raises
    ------
    DataError
        When they do.
    pyarrow.ArrowInvalid
        When a column's pages hold another number of values than the footer says.
    """
    numbers = range(metadata.num_row_groups) if groups is None else groups
    chunks = [metadata.row_group(group).column(column) for group in numbers for column in range(metadata.num_columns)]
    total = metadata.num_rows if groups is None else 0
    for number, chunk in enumerate(chunks):
        total += _decoded_bytes(metadata, number % metadata.num_columns, chunk)
        TABLE.check(f"{path}", total, "a table, decoded,")
    with open_regular(path, buffering=0) if file is None else nullcontext(file) as pages:
        for chunk in chunks:
            _check_pages(pages, chunk)


def _decoded_bytes(metadata: Any, column: int, chunk: Any) -> int:
    """Return what a column of a row group takes once it is decoded, texts as numbers into a dictionary."""
    kind = _column(metadata, column)
    levels = _LEVELS if kind.max_definition_level or kind.max_repetition_level else 0
    width = _WIDTHS.get(chunk.physical_type)
    if width is None:
        length = max(0, kind.length) if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        return int(chunk.num_values * (_NUMBER + levels + length) + chunk.total_uncompressed_size)
    return int(chunk.num_values * (width + levels))


def _check_pages(file: IO[bytes], chunk: Any) -> None:
    """Compare what the pages of a column say of themselves with the footer."""
    starts = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        starts.append(chunk.dictionary_page_offset)
    place, values, decoded = min(starts), 0, 0
    stop = place + chunk.total_compressed_size
    while place < stop and values < chunk.num_values:
        page, length = _page(file, place)
        place += length + page.stored
        decoded += page.decoded
        if page.kind in (_DATA, _DATA_V2):
            values += page.values
        elif page.kind == _DICTIONARY and page.values > max(page.decoded, 1):
            raise _damaged(f"a dictionary of {page.values} words in {page.decoded} bytes", "words of some bytes")
    if values > chunk.num_values:
        raise _damaged(f"pages of {values} values", f"{chunk.num_values}, as the footer says")
    if decoded > chunk.total_uncompressed_size:
        raise _damaged(f"pages of {decoded} bytes", f"{chunk.total_uncompressed_size}, as the footer says")


class _Page:
    """What a page's header says."""

    def __init__(self, fields: dict[int, Any]) -> None:
        self.kind, self.decoded, self.stored = (int(fields.get(number, -1)) for number in (1, 2, 3))
        inner: dict[int, Any] = next((fields[number] for number in (5, 7, 8) if number in fields), {})
        self.values = int(inner.get(1, 0))
        if min(self.kind, self.decoded, self.stored, self.values) < 0:
            raise ValueError("a page of negative size")


def _page(file: IO[bytes], place: int) -> tuple[_Page, int]:
    """Return the header of a page, and its bytes."""
    size = _HEADER_BYTES
    while True:
        file.seek(place)
        data = file.read(size)
        reader = ThriftReader(data)
        try:
            return _Page(reader.struct()), reader.place
        except EOFError:
            if len(data) < size or size >= _MOST_HEADER:
                raise _damaged(f"no page at byte {place}", "the header of a page") from None
            size *= 16
        except (ValueError, TypeError, AttributeError):
            raise _damaged(f"other bytes at {place}", "the header of a page") from None


def _in_full(path: Path | str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with texts in full, as `schema` has them, unless these would take too much memory."""
    total = table.nbytes
    for column, field in zip(table.columns, schema, strict=True):
        if column.type != field.type:
            total += sum(map(_text_bytes, column.chunks))
            TABLE.check(f"{path}", total, "a table, decoded,")
    return table.cast(schema)


def _text_bytes(values: pa.Array) -> int:
    """Return what texts that are numbers into a dictionary take in full, those in lists and structures too."""
    if pa.types.is_dictionary(values.type):
        lengths = pc.binary_length(values.dictionary).cast(pa.int64())
        return len(values) * _NUMBER + (pc.sum(lengths.take(values.indices)).as_py() or 0)
    if pa.types.is_struct(values.type):
        return sum(map(_text_bytes, values.flatten()))
    if pa.types.is_map(values.type):
        return _text_bytes(values.keys) + _text_bytes(values.items)
    return _text_bytes(values.flatten()) if pa.types.is_nested(values.type) else 0


def _column(metadata: Any, number: int) -> Any:
    return metadata.schema.column(number)


def _damaged(found: str, expected: str) -> pa.ArrowInvalid:
    """Return what Arrow raises at a damaged file: whoever reads it knows what to say."""
    return pa.ArrowInvalid(f"{found} instead of {expected}")


_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MOST_VARINT = 10
"""Bytes of an integer at most."""
_DEEPEST = 8


class ThriftReader:
    """Reads structures from bytes; for one thread.

    Parameters
    ----------
    data
        The bytes; may go on behind a structure.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return a structure's fields by number: integers, bytes and structures; of others None.

        Raises EOFError when the bytes end within it, ValueError when they are none.
        """
        if depth > _DEEPEST:
            raise ValueError("structures that are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else self._integer()
            fields[number] = self._value(kind, depth, is_field=True)
        return fields

    def _value(self, kind: int, depth: int, *, is_field: bool = False) -> Any:
        if kind in (_TRUE, _FALSE):
            if not is_field:
                self._byte()
            return None
        if kind == _BYTE:
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._integer()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 0x0F else head >> 4):
                self._value(head & 0x0F, depth + 1)
            return None
        raise ValueError(f"a field of type {kind}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        found = self._data[self.place : self.place + count]
        if len(found) < count:
            raise EOFError
        self.place += count
        return found

    def _varint(self) -> int:
        value = 0
        for number in range(_MOST_VARINT):
            byte = self._byte()
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise ValueError("an integer without an end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
