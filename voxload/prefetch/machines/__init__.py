"""Machines described as TOML: those that voxload ships, and a user's own.

``template.toml`` beside this file explains every entry.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from voxload.errors import NotFoundError, UsageError
from voxload.files.regular import check_regular, read_text
from voxload.prefetch.machines.entries import Entries
from voxload.prefetch.simulation.machine import Machine, Network, NodeTier, Staging, Storage

_SUFFIX = ".toml"
NONE: Mapping[str, str] = MappingProxyType({})
PLANNERS = ("device", "links", "calibration")
"""Tables that `voxload.plan` reads, and nobody else."""


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
    return parse(text_of(name), name)


def text_of(name: str, others: Mapping[str, str] = NONE) -> str:
    """Return the TOML text of a machine, by name or path as `load` takes it.

    Parameters
    ----------
    name
        Of a machine, or the path of a file.
    others
        Texts of machines by name, beside those that are shipped here.
    """
    if name in names():
        return (files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    if name in others:
        return others[name]
    path = Path(name)
    check_regular(path)
    if not path.is_file():
        raise NotFoundError(
            f"machine {name!r}",
            found="neither a name nor a file",
            expected=f"one of {', '.join(sorted({*names(), *others}))}, or the path of a TOML file",
        )
    return read_text(path)


def parse(text: str, where: str, *, needs_compute: bool = True) -> Machine:
    """Return the machine that a TOML text describes; raises UsageError that names `where` and the entry.

    Who knows what a step takes needs no entry [compute].
    """
    top = entries_of(text, where)
    unknown = Entries({"seconds_per_step": 0.0}, where)
    compute = top.part("compute") if needs_compute or top.has("compute") else unknown
    node, storage = top.part("node"), top.part("storage")
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
    for name in PLANNERS:
        top.pass_over(name)
    for part in (top, compute, node, storage, network, memory, staging):
        part.check_all_used()
    return machine


def entries_of(text: str, where: str) -> Entries:
    """Return the entries of a TOML text; raises UsageError that names `where`."""
    try:
        return Entries(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(where, found=str(error), expected="TOML", remedy="is the file whole?") from None


def _tier(part: Entries) -> NodeTier:
    tier = NodeTier(part.size("bytes"), part.count("threads"), part.rates("read"), part.rates("write"))
    part.check_all_used()
    return tier
