"""Differences: what is not the same in two results beside their figures, so that like is compared with like; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from voxload.benchmark.document import Document
from voxload.benchmark.measures import node_count

ABSENT = "(none)"
"""Stands for what only the other result has."""
WORKLOAD, DATA, HOST, RUN = "workload", "data set", "host", "run"
"""Parts of a result that can differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that two results do not share."""

    part: str
    """`WORKLOAD`, `DATA`, `HOST` or `RUN`."""
    name: str
    """The fact, with points between levels: ``share.halo``, ``versions.numpy``."""
    before: str
    after: str


def differences(first: Document, second: Document) -> tuple[Difference, ...]:
    """Return what differs in workload, data set, hosts with their versions, and how they ran."""
    return tuple(
        Difference(part, name, before, after)
        for part, both in _parts(first, second)
        for name, before, after in _unequal(*both)
    )


def flat(values: Mapping[str, Any], *, above: str = "") -> dict[str, str]:
    """Return nested facts as text by name, with points between levels."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, above=f"{above}{name}.")
        else:
            found[f"{above}{name}"] = _text(value)
    return found


def host_facts(document: Document) -> dict[str, str]:
    """Return the facts of all hosts, by name: each value that occurs, once."""
    hosts = [flat(host) for host in document.hosts]
    names = dict.fromkeys(name for host in hosts for name in host)
    return {name: "; ".join(dict.fromkeys(host[name] for host in hosts if name in host)) for name in names}


def _parts(first: Document, second: Document) -> tuple[tuple[str, tuple[dict[str, str], dict[str, str]]], ...]:
    return (
        (WORKLOAD, (flat(asdict(first.workload)), flat(asdict(second.workload)))),
        (DATA, (flat(first.data), flat(second.data))),
        (HOST, (host_facts(first), host_facts(second))),
        (RUN, (_run_facts(first), _run_facts(second))),
    )


def _run_facts(document: Document) -> dict[str, str]:
    """Return how a result came about; not when, nor its seeds, which differ in any two."""
    states = dict.fromkeys(
        f"{run.cold.method}, {'' if run.cold.is_verified else 'not '}verified" for run in document.runs
    )
    labels = {f"label: {label}": "yes" for label in document.labels}
    return {
        "ranks": str(document.ranks),
        "ranks of a sample group": str(document.group_ranks),
        "nodes": str(node_count(document)),
        "repetitions": str(len(document.runs)),
        "page cache": "; ".join(states),
        **labels,
    }


def _unequal(first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys((*first, *second))
    pairs = ((name, first.get(name, ABSENT), second.get(name, ABSENT)) for name in names)
    return [found for found in pairs if found[1] != found[2]]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(inner) for inner in value)
    return str(value)
