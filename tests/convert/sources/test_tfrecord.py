"""TFRecord files of CosmoFlow, written with google.protobuf and google_crc32c."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.laws.source import check_converts, check_source, coordinates, read_box
from voxload.convert.sources import Hints
from voxload.convert.sources.binary.streams import PIECE_BYTES
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.records.cosmoflow import Cosmoflow2018, MlperfCosmoflow
from voxload.errors import DataError, UsageError
from voxload.geometry import Box

TARGETS = (0.5, -0.25, 0.125, -1.0)
FIELD = descriptor_pb2.FieldDescriptorProto
LISTS = {"BytesList": FIELD.TYPE_BYTES, "FloatList": FIELD.TYPE_FLOAT, "Int64List": FIELD.TYPE_INT64}


def _messages() -> dict[str, Any]:
    """Return the message classes of example.proto and feature.proto, from a descriptor built here."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    for name, kind in LISTS.items():
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=FIELD.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(LISTS, 1):
        feature.field.add(
            name=name.lower(), number=number, type=FIELD.TYPE_MESSAGE, type_name=f".t.{name}", oneof_index=0, label=1
        )
    whole = file.message_type.add(name="Features")
    entry = whole.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_MESSAGE, type_name=".t.Feature", label=1)
    whole.field.add(name="feature", number=1, type=FIELD.TYPE_MESSAGE, type_name=".t.Features.FeatureEntry", label=3)
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=FIELD.TYPE_MESSAGE, type_name=".t.Features", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Example", "Features")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in names}


MESSAGES = _messages()


def _example(values: dict[str, Any]) -> bytes:
    """Return an Example whose features come in the order given: each is an Example that parsers merge into one."""
    parts = []
    for name, value in values.items():
        message = MESSAGES["Example"]()
        feature = message.features.feature[name]
        if isinstance(value, bytes):
            feature.byteslist.value.append(value)
        else:
            feature.floatlist.value.extend(value)
        parts.append(message.features.SerializeToString())
    merged = MESSAGES["Features"].FromString(b"".join(parts))
    assert set(merged.feature) == set(values)
    return _field(1, b"".join(parts))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32)


def _write(path: Path, *records: bytes, compressed: bool = False) -> Path:
    lengths = [struct.pack("<Q", len(record)) for record in records]
    content = b"".join(n + _crc(n) + record + _crc(record) for n, record in zip(lengths, records, strict=True))
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path


def _mlperf(volume: Any, *, is_target_first: bool = False) -> bytes:
    values = {"x": volume.transpose(1, 2, 3, 0).tobytes(), "y": TARGETS}
    return _example(dict(reversed(values.items())) if is_target_first else values)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("is_target_first", [False, True])
def test_no_axis_moves_in_mlperf_records(tmp_path: Path, *, compressed: bool, is_target_first: bool) -> None:
    """Every record is a cube with redshift last and its four parameters, whatever the order of the features."""
    volumes = [coordinates((4, 6, 6, 6), "<i2") + np.int16(number) for number in range(3)]
    records = [_mlperf(volume, is_target_first=is_target_first) for volume in volumes]
    probe = Probe(_write(tmp_path / "u_000.tfrecord", *records, compressed=compressed))
    assert MlperfCosmoflow().claims(probe)
    assert not Cosmoflow2018().claims(probe)
    sources = MlperfCosmoflow().sources(probe, Hints())
    assert [source.describe().part for source in sources] == ["0", "1", "2"]
    targets = dict(zip(("omega_m", "sigma_8", "n_spec", "h_0"), TARGETS, strict=True))
    for source, volume in zip(sources, volumes, strict=True):
        cube = source.describe()
        assert (cube.dataset, cube.order.axes, cube.is_sequential) == ("x", "DHWC", compressed)
        assert cube.targets == targets
        check_source(source, volume)
    converted = {(f"u_000_{number}", "x"): volume for number, volume in enumerate(volumes)}
    check_converts(probe.path, converted, targets={sample: targets for sample, _ in converted})


@pytest.mark.parametrize("compressed", [False, True])
def test_no_axis_moves_in_2018_records(tmp_path: Path, *, compressed: bool) -> None:
    """A record of 2018 is one float64 cube; two labels have names and a third is numbered."""
    volume = coordinates((1, 5, 5, 5), "<f8")
    labels = np.array([0.25, 0.75, 0.7]).tobytes()
    record = _example({"label_raw": labels, "data_raw": volume.tobytes()})
    probe = Probe(_write(tmp_path / "0.tfrecord", record, compressed=compressed))
    assert Cosmoflow2018().claims(probe)
    assert not MlperfCosmoflow().claims(probe)
    (source,) = Cosmoflow2018().sources(probe, Hints())
    cube = source.describe()
    assert (cube.dataset, cube.part) == ("data_raw", "")
    assert cube.targets == {"omega_m": 0.25, "sigma_8": 0.75, "target_2": 0.7}
    check_source(source, volume)
    check_converts(probe.path, {("0", "data_raw"): volume}, targets={"0": cube.targets})


def test_a_compressed_cube_of_many_pieces(tmp_path: Path) -> None:
    """A stream is decoded in pieces, and a box that lies behind begins it anew."""
    volume = np.random.default_rng(0).integers(-999, 999, (4, 40, 40, 40)).astype("<i2")
    assert volume.nbytes > PIECE_BYTES
    path = _write(tmp_path / "u.tfrecord", _mlperf(volume), compressed=True)
    (source,) = MlperfCosmoflow().sources(Probe(path), Hints())
    with source.open() as read_into:
        for first in (20, 0, 39):
            out = np.empty((4, 1, 40, 40), "i2")
            read_into(Box((first, 0, 0), (first + 1, 40, 40)), out)
            np.testing.assert_array_equal(out, volume[:, first : first + 1])


def test_unpacked_floats_and_other_fields_are_read(tmp_path: Path) -> None:
    """Floats one by one, a key behind its value and unknown fields are all allowed by the encoding."""
    volume = coordinates((4, 2, 2, 2), "<i2")
    voxels = volume.transpose(1, 2, 3, 0).tobytes()
    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in TARGETS)
    y = _field(2, _field(2, floats)) + _field(1, b"y")
    x = _field(1, b"x") + _field(2, b"\x20\x07" + _field(1, _field(1, voxels))) + b"\x18\xff\x01"
    path = _write(tmp_path / "u.tfrecord", _field(1, _field(1, y) + b"\x51" + bytes(8) + _field(1, x)))
    assert MlperfCosmoflow().claims(Probe(path))
    (source,) = MlperfCosmoflow().sources(Probe(path), Hints())
    assert tuple(source.describe().targets.values()) == TARGETS
    check_source(source, volume)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_voxel_that_changed_is_found(tmp_path: Path, *, compressed: bool) -> None:
    """The checksum of the data is compared before a plain record is used, and with the last voxel of a stream."""
    volume = coordinates((4, 6, 6, 6), "<i2")
    path = _write(tmp_path / "u.tfrecord", _mlperf(volume))
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(gzip.compress(content) if compressed else content)
    (source,) = MlperfCosmoflow().sources(Probe(path), Hints())
    with pytest.raises(DataError, match=r"u\.tfrecord, record at byte 12: found data with masked CRC-32C .* expected"):
        read_box(source, Box.whole((6, 6, 6)))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_file_is_refused(tmp_path: Path, *, compressed: bool) -> None:
    """A file that ends within a record is refused before anything is read, wherever it ends."""
    record = _mlperf(np.random.default_rng(0).integers(0, 99, (4, 9, 9, 9)).astype("<i2"))
    for lost in (1, 5, 300, len(record) // 4) if compressed else (1, 5, 300, len(record) + 10):
        path = _write(tmp_path / "u.tfrecord", record, record, compressed=compressed)
        os.truncate(path, path.stat().st_size - lost)
        probe = Probe(path)
        assert MlperfCosmoflow().claims(probe)
        found = "the end of the file within the compressed stream" if compressed else ""
        with pytest.raises(DataError, match=rf"u\.tfrecord: found {found}"):
            MlperfCosmoflow().sources(probe, Hints())


def test_a_damaged_second_length_is_refused(tmp_path: Path) -> None:
    """A length whose checksum does not fit would lead anywhere."""
    record = _mlperf(coordinates((4, 2, 2, 2), "<i2"))
    path = _write(tmp_path / "u.tfrecord", record, record)
    content = bytearray(path.read_bytes())
    content[len(record) + 16] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a length of .* whose checksum does not fit"):
        MlperfCosmoflow().sources(Probe(path), Hints())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": bytes(8), "z": TARGETS}, "found features .'x', 'z'., expected 'x' and 'y'"),
        ({"x": bytes(8), "y": TARGETS[:3]}, "found 3 floats in 'y', expected 4: omega_m"),
        ({"y": TARGETS, "x": bytes(16)}, "found 16 bytes in 'x', expected those of a cube of 4 channels of int16"),
        ({"y": TARGETS, "x": TARGETS}, "found 0 byte strings in 'x'"),
    ],
)
def test_other_records_are_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    """What looks like MLPerf at first is refused with what it holds instead."""
    probe = Probe(_write(tmp_path / "u.tfrecord", _example(values)))
    assert MlperfCosmoflow().claims(probe)
    with pytest.raises(DataError, match=message):
        MlperfCosmoflow().sources(probe, Hints())


def test_faults_of_2018(tmp_path: Path) -> None:
    """Voxels that are no cube and labels that are no float64 are refused."""
    for values, message in (
        ({"data_raw": bytes(8 * 7), "label_raw": bytes(16)}, "found 56 bytes in 'data_raw'"),
        ({"data_raw": bytes(8), "label_raw": bytes(9)}, "byte strings of .9. bytes in 'label_raw'"),
    ):
        path = _write(tmp_path / "0.tfrecord", _example(values))
        with pytest.raises(DataError, match=message):
            Cosmoflow2018().sources(Probe(path), Hints())


def test_what_is_not_claimed(tmp_path: Path) -> None:
    """Other messages, other files and damaged beginnings belong to neither format."""
    good = _mlperf(coordinates((4, 2, 2, 2), "<i2"))
    path = tmp_path / "u.tfrecord"
    contents = [b"", b"\x1f\x8b" + bytes(50), b"\x93NUMPY" + bytes(90), gzip.compress(b"text" * 99)]
    for content in contents:
        path.write_bytes(content)
        assert not MlperfCosmoflow().claims(Probe(path))
        assert not Cosmoflow2018().claims(Probe(path))
    for record in (b"no message", b"", _example({"image": bytes(8)}), _example({"x": bytes(9)}), b"\x0a\xff" + good):
        probe = Probe(_write(path, record))
        assert not MlperfCosmoflow().claims(probe)
        assert not Cosmoflow2018().claims(probe)


def test_axes_that_the_caller_names(tmp_path: Path) -> None:
    """Records that another tool wrote channels first are taken at the caller's word."""
    volume = coordinates((4, 3, 3, 3), "<i2")
    path = _write(tmp_path / "u.tfrecord", _example({"x": volume.tobytes(), "y": TARGETS}), compressed=True)
    (source,) = MlperfCosmoflow().sources(Probe(path), Hints(axes="CDHW"))
    check_source(source, volume)
    with pytest.raises(UsageError, match="axes"):
        MlperfCosmoflow().sources(Probe(path), Hints(axes="DHW"))
