"""Ready: what the loop waits for a batch that has long been ready, by the ranks of `voxload bench run`, one and two."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from bench.harness.findings import Finding, Outcome, Sheet, at_least, at_most
from bench.looping.cases import OWNS, STORES
from voxload.benchmark.measure.document import Document
from voxload.benchmark.measure.turns import Turns, in_turns
from voxload.benchmark.run import launch
from voxload.benchmark.run.job import Request
from voxload.benchmark.workload.workload import Emulation, Length, Samples, Share, Supply, Workload
from voxload.launch.processes import launch_ranks

MOST_MEDIAN, MOST_TAIL, LEAST_AU = 0.1, 0.3, 0.98
"""Milliseconds of a stall, p50 and p99, and the share of time in which the loop computes."""
_STEP = "20ms"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row."""

    store: str
    size: int
    ranks: int
    batch: int
    loader: str

    @property
    def place(self) -> str:
        """What all loaders are compared in."""
        return f"{self.store} {self.size}^3, {self.ranks} rank{'s' * (self.ranks > 1)}, batches of {self.batch}"

    @property
    def name(self) -> str:
        """What is said of it."""
        return f"{self.place}: {self.loader}"

    def workload(self, samples: Path, steps: int) -> Workload:
        """Return what the ranks are told: a loop that sleeps between its batches."""
        return Workload(
            Samples(str(samples)),
            Share((self.ranks, 1, 1), batch_size=self.batch),
            Length(epochs=2, steps=steps),
            Supply(self.loader, threads=2),
            Emulation("sleep", _STEP),
        )

    def run(self, samples: Path, steps: int) -> Mapping[str, float]:
        """Load for so many steps in processes of their own; return milliseconds and AU."""
        request = Request(self.workload(samples, steps), command=tuple(sys.argv))
        documents: list[Document] = []

        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "result":
                documents.append(Document.from_dict(event["document"]))

        launch_ranks(
            "voxload.benchmark.run.launch",
            launch.request_json(request),
            processes=self.ranks,
            subject=self.loader,
            hear=hear,
        )
        (document,) = documents
        return {
            "p50": 1e3 * document.median("stall.p50"),
            "p99": 1e3 * document.median("stall.p99"),
            "au": document.median("utilisation"),
        }


def measured(folder: Path, stores: Sequence[str], size: int, *, steps: int, rounds: int) -> Outcome:
    """Time all settings in turns, with the peer of each store beside voxload."""
    settings = [
        Setting(store, size, ranks, batch, loader)
        for store in stores
        for ranks in (1, 2)
        for batch in (1, 8)
        for loader in (*OWNS, STORES[store].peer)
    ]
    samples = {store: STORES[store].samples(folder, size, 8 * steps) for store in stores}

    def run(setting: Setting) -> Mapping[str, float]:
        found = setting.run(samples[setting.store], steps)
        print(f"{setting.place}: {setting.loader:<10} {found['p50']:.3f} ms, p99 {found['p99']:.3f} ms", flush=True)
        return found

    return outcome(in_turns(tuple(settings), rounds, run))


def outcome(turns: Turns[Setting, Mapping[str, float]]) -> Outcome:
    """Return what the runs come to: voxload's are judged, the peers' are shown."""
    settings = tuple(turns.results)
    return Outcome(
        findings=tuple(finding for each in settings if each.loader in OWNS for finding in _findings(each, turns)),
        sheets=(_sheet(settings, turns),),
        document={f"{each.place}: {each.loader}": turns.results[each] for each in settings},
        others=turns.others,
    )


def _findings(setting: Setting, turns: Turns[Setting, Mapping[str, float]]) -> tuple[Finding, ...]:
    each = {name: tuple(found[name] for found in turns.results[setting]) for name in ("p50", "p99", "au")}
    return (
        at_most(f"{setting.name}: p50, ms", MOST_MEDIAN, each["p50"]),
        at_most(f"{setting.name}: p99, ms", MOST_TAIL, each["p99"]),
        at_least(f"{setting.name}: AU", LEAST_AU, each["au"]),
    )


def _sheet(settings: Sequence[Setting], turns: Turns[Setting, Mapping[str, float]]) -> Sheet:
    def cells(setting: Setting) -> tuple[str, ...]:
        p50, p99, au = (turns.figures(itemgetter(name)).median(setting) for name in ("p50", "p99", "au"))
        return (f"{p50:.3f}", f"{p99:.3f}", f"{100 * au:.1f}")

    rows = tuple((each.place, each.loader, *cells(each)) for each in settings)
    caption = f"the loop sleeps {_STEP} between; medians of {len(turns.others)} rounds"
    return Sheet("Waiting for a batch that is ready", caption, ("where", "loader", "p50, ms", "p99, ms", "AU, %"), rows)
