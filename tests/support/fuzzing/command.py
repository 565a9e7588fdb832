"""Command: the options of the fuzzer, and its report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.fuzzing.doors import read, read_converted
from tests.support.fuzzing.outcomes import Outcome, Record
from tests.support.fuzzing.watch import Watch, sound_targets
from tests.support.fuzzing.worker import Plan


def main() -> int:
    """Parse the command line and give every input to readers or to a conversion; returns 1 when one of them failed."""
    words = _parse()
    is_conversion = words.door == "convert"
    targets = [target for target in sound_targets(are_raw=is_conversion) if words.target in target.name]
    plan = Plan(targets, words.seed, words.memory << 20, words.seconds, read_converted if is_conversion else read)
    indices = words.only or range(words.count)
    shared = Path("/dev/shm")  # noqa: S108 - a folder of our own in it; thousands of files need no disk
    records = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        watch = Watch(plan, Path(folder), jobs=words.jobs)
        if not watch.reads_sound():
            print("a sound volume is not read right: nothing that is found below would mean anything", file=sys.stderr)
            return 2
        for record in watch.run(indices):
            records.append(record)
            if record.outcome.is_failure or words.only:
                print(f"input {record.index}, {record.target}, {record.mutation}: {record.outcome.value}: "
                      f"{record.detail}", file=sys.stderr)  # fmt: skip
            if record.outcome.is_failure and words.keep:
                _keep(plan, record, words.keep)
    print(_json(records) if words.json else _table(records, plan))
    if not words.json:
        print(f"\n{len(records):,} inputs, seed {words.seed}, {time.monotonic() - begin:.0f} s")
    return int(any(record.outcome.is_failure for record in records))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzzing", description="Fuzz readers or conversions.")
    parser.add_argument("door", choices=("readers", "convert"), help="what is given the damaged inputs")
    parser.add_argument("--count", type=int, default=20_000, help="inputs (default 20000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all inputs (default 0)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    parser.add_argument("--seconds", type=float, default=20, help="longest time for one input (default 20)")
    parser.add_argument("--memory", type=int, default=256, help="MiB that reading may allocate (default 256)")
    parser.add_argument("--target", default="", help="only volumes whose names have this in them")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the inputs to read, instead of all")
    parser.add_argument("--keep", type=Path, help="folder for the volumes at which a reader failed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def _keep(plan: Plan, record: Record, folder: Path) -> None:
    """Save a damaged volume."""
    place = folder / f"seed{plan.seed}-input{record.index}"
    plan.target(record.index).write(place)
    mutation = plan.draw(record.index)
    (place / mutation.file.name).write_bytes(mutation.data)


def _counts(records: Sequence[Record]) -> dict[str, Counter[Outcome]]:
    counts: dict[str, Counter[Outcome]] = {}
    for record in records:
        counts.setdefault(record.target, Counter())[record.outcome] += 1
    return dict(sorted(counts.items()))


def _table(records: Sequence[Record], plan: Plan) -> str:
    counts = _counts(records)
    columns = [outcome for outcome in Outcome if any(row[outcome] for row in counts.values())]
    width = max(len(target.name) for target in plan.targets)
    lines = [f"{place:>3}  {outcome.value}{'   FAILURE' if outcome.is_failure else ''}"
             for place, outcome in enumerate(columns, 1)]  # fmt: skip
    lines += ["", f"{'':<{width}}" + "".join(f"{place:>8}" for place, _ in enumerate(columns, 1))]
    total = sum(counts.values(), Counter[Outcome]())
    for name, row in (*counts.items(), ("all", total)):
        lines.append(f"{name:<{width}}" + "".join(f"{row[outcome]:>8}" for outcome in columns))
    return "\n".join(lines)


def _json(records: Sequence[Record]) -> str:
    counts = {name: {outcome.value: n for outcome, n in row.items()} for name, row in _counts(records).items()}
    failures = [
        {"input": record.index, "target": record.target, "mutation": record.mutation,
         "outcome": record.outcome.value, "detail": record.detail}
        for record in records if record.outcome.is_failure
    ]  # fmt: skip
    return json.dumps({"inputs": len(records), "counts": counts, "failures": failures}, indent=1)
