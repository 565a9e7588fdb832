"""Machines described as TOML: those that voxload ships, and a user's own.

``template.toml`` beside this file explains every entry.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from voxload.errors import NotFoundError, UsageError
from voxload.files.regular import check_regular, read_text
from voxload.prefetch.simulation.machine import Machine, Network, NodeTier, Rates, Staging, Storage
from voxload.units import parse_bytes

_SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """Return the names of the machines that voxload ships."""
    found = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def load(name: str) -> Machine:
    """Return a machine: one that voxload ships, by name, or any by the path of its TOML file.

    Raises
    ------
    NotFoundError
        When there is neither.
    UsageError
        When the file is no TOML or an entry is missing, unknown or wrong.
    """
    if name in names():
        return parse((files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8"), name)
    path = Path(name)
    check_regular(path)
    if not path.is_file():
        raise NotFoundError(
            f"machine {name!r}",
            found="neither a name nor a file",
            expected=f"one of {', '.join(names())}, or the path of a TOML file",
        )
    return parse(read_text(path), name)


def parse(text: str, where: str) -> Machine:
    """Return the machine that a TOML text describes; raises UsageError that names `where` and the entry."""
    try:
        top = _Entries(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(where, found=str(error), expected="TOML") from None
    compute, node, storage = top.part("compute"), top.part("node"), top.part("storage")
    network, memory, staging = top.part("network"), top.part("memory"), top.part("staging")
    machine = Machine(
        name=top.text("name"),
        source=top.text("source"),
        ranks_per_node=node.count("ranks"),
        compute_rate=compute.rate("bytes_per_second") if compute.has("bytes_per_second") else 0.0,
        compute_seconds=0.0 if compute.has("bytes_per_second") else compute.seconds("seconds_per_step"),
        storage=Storage(storage.seconds("latency"), storage.count("threads"), storage.rates("bytes_per_second")),
        network=Network(network.seconds("latency"), network.count("threads"), network.rate("bytes_per_second")),
        memory=_tier(memory),
        disk=_tier(top.part("disk")) if top.has("disk") else None,
        staging=Staging(
            nbytes=0 if staging.has("slots") else staging.size("bytes"),
            slots=staging.count("slots") if staging.has("slots") else 0,
            threads=staging.count("threads"),
            decode=staging.rate("decode_bytes_per_second") if staging.has("decode_bytes_per_second") else math.inf,
        ),
    )
    for part in (top, compute, node, storage, network, memory, staging):
        part.check_all_used()
    return machine


def _tier(part: _Entries) -> NodeTier:
    tier = NodeTier(part.size("bytes"), part.count("threads"), part.rates("read"), part.rates("write"))
    part.check_all_used()
    return tier


class _Entries:
    """A TOML table whose entries are taken by name and kind; errors name the file and the entry."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._table, self._where = table, where
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._table

    def part(self, name: str) -> _Entries:
        table = self._take(name, "a table")
        if not isinstance(table, dict):
            raise self._wrong(name, table, f"a table [{name}]")
        return _Entries(table, f"{self._where}: [{name}]")

    def text(self, name: str) -> str:
        value = self._take(name, "text")
        if not isinstance(value, str):
            raise self._wrong(name, value, "text")
        return value

    def count(self, name: str) -> int:
        value = self._take(name, "a whole number")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(name, value, "a whole number from 1 on")
        return value

    def seconds(self, name: str) -> float:
        value = self._take(name, "seconds")
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise self._wrong(name, value, "seconds from 0 on")
        return float(value)

    def size(self, name: str) -> int:
        return self._bytes(name, self._take(name, "bytes"))

    def rate(self, name: str) -> float:
        value = self._take(name, "bytes per second")
        rate = self._bytes(name, value)
        if rate <= 0:
            raise self._wrong(name, value, "more than 0 bytes per second")
        return float(rate)

    def rates(self, name: str) -> Rates:
        value = self._take(name, "pairs of a number and bytes per second")
        try:
            pairs = [(int(users), float(parse_bytes(total))) for users, total in value]
            return Rates(tuple(users for users, _ in pairs), tuple(total for _, total in pairs))
        except (TypeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise self._within(name, error) from None
            raise self._wrong(name, value, 'pairs such as [[1, "330MB"], [8, "2.87GB"]]') from None

    def check_all_used(self) -> None:
        """Raise UsageError for an entry that nothing asked for: a slip of the pen would go unnoticed."""
        unknown = sorted(set(self._table) - self._used)
        if unknown:
            raise UsageError(
                f"{self._where} {unknown[0]}", found="unknown", remedy="see template.toml in voxload/prefetch/machines"
            )

    def _take(self, name: str, kind: str) -> Any:
        self._used.add(name)
        if name not in self._table:
            raise UsageError(f"{self._where} {name}", found="nothing", expected=kind)
        return self._table[name]

    def _bytes(self, name: str, value: Any) -> int:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self._wrong(name, value, 'bytes, such as "64MB" or 64000000')
        try:
            return parse_bytes(value)
        except UsageError as error:
            raise self._within(name, error) from None

    def _within(self, name: str, error: UsageError) -> UsageError:
        return error.within(f"{self._where} {name}", remedy="see template.toml in voxload/prefetch/machines")

    def _wrong(self, name: str, value: object, expected: str) -> UsageError:
        return UsageError(f"{self._where} {name}", found=repr(value), expected=expected)
