"""Memory: the activations of a rank, as a share of one process's."""

from __future__ import annotations

from typing import Any

from bench.engining.job import P2P, PLAIN, Way
from bench.engining.launch import Worlds
from bench.engining.outcome import Outcome, Sheet
from bench.engining.planned import received_bytes
from bench.engining.rounds import Kind, Pace
from bench.harness.findings import Finding, at_most

_ROOM = 1.1
"""Most times the least that is possible."""
_WHAT = ("saved", "peak")
_MIB = 1 << 20


def memory(worlds: Worlds, pace: Pace, kind: Kind) -> Outcome:
    """Weigh the activations of a step in one process, and of ranks that share a sample."""
    one = worlds.of(1).ask("weigh", Way(PLAIN))[0]
    rows = [("one process", *(f"{one[what] / _MIB:.1f}" for what in _WHAT), "-", "1", "1", "-")]
    findings: list[Finding] = []
    document: dict[str, Any] = {"one process": one}
    for count in kind.ranks:
        halos = received_bytes(pace.size, count, itemsize=kind.itemsize)
        wanted = {what: _ROOM * (1 / count + max(halos) / one[what]) for what in _WHAT}
        for join in kind.joins:
            shares = worlds.of(count).ask("weigh", Way(P2P, join))
            most = {what: max(share[what] for share in shares) for what in _WHAT}
            ratios = {what: most[what] / one[what] for what in _WHAT}
            title = f"{count} ranks, {join}"
            findings += [
                at_most(f"memory: {title}: {what} to one process", wanted[what], (ratios[what],)) for what in _WHAT
            ]
            document[title] = {"ranks": shares, "received": halos}
            sizes = (most["saved"], most["peak"], max(halos))
            rows.append(
                (
                    title,
                    *(f"{size / _MIB:.1f}" for size in sizes),
                    *(f"{ratio:.3f}" for ratio in ratios.values()),
                    f"{wanted['saved']:.3f}",
                )
            )
        worlds.leave(count)
    sheet = Sheet(
        title=f"Memory of a step, {pace.size}^3: the rank that has most",
        caption="saved: distinct storages kept for the backward pass, without weights; peak: most bytes given out by "
        "torch's allocator in forward and backward pass beyond those before; weights' gradients are there by then; "
        f"halos: received in a forward pass, by the plan; allowed: {_ROOM:g} (1 / ranks + halos / saved)",
        columns=("", "saved MiB", "peak MiB", "halos MiB", "saved to one", "peak to one", "allowed"),
        rows=tuple(rows),
    )
    return Outcome(tuple(findings), (sheet,), document)
