"""``voxload bench run``: how fast this storage feeds a network on so many ranks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from voxload.benchmark.cold.coldness import METHODS
from voxload.benchmark.generate.generate import generate
from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.csv_rows import write_csv
from voxload.benchmark.results.tables import result_tables
from voxload.benchmark.run.job import Request
from voxload.benchmark.run.launch import launch_benchmark
from voxload.benchmark.workload.emulation import KINDS
from voxload.benchmark.workload.presets import PRESETS, Scaled
from voxload.benchmark.workload.presets import named as preset_named
from voxload.benchmark.workload.workload import (
    COLD,
    NEVER,
    ORDERS,
    SHUFFLED,
    Coldness,
    Emulation,
    Length,
    Samples,
    Share,
    Supply,
    Workload,
)
from voxload.cli.options import AllowOutside, check_file, parse_triple
from voxload.cli.terminal import Screen, byte_bar, count_bar
from voxload.errors import UsageError
from voxload.grid import launched_as
from voxload.loader.cache import CLAIRVOYANT, PEERS
from voxload.prefetch import policies
from voxload.text import shown
from voxload.units import parse_bytes

EPILOG = (
    "Example: voxload bench run universes/ --spatial 2,2,2 --nproc 8 --compute sleep --compute-time 0.3 "
    "--cold run --repeats 5 --output result.json"
)
"""Shown at the end of the command's help."""
_SAMPLES = 16
"""Samples that a preset generates unless told otherwise."""


def run(
    data: Annotated[
        str, typer.Argument(help="A catalogue, its folder, a pattern or a URL.", show_default="the preset's samples")
    ] = "",
    *,
    preset: Annotated[str, typer.Option(help=f"A published workload: {', '.join(PRESETS)}.")] = "",
    shrink: Annotated[int, typer.Option(help="Divide the extents of the preset's samples.", min=1)] = 1,
    num_samples: Annotated[int, typer.Option(help="Samples that the preset generates.", min=1)] = _SAMPLES,
    folder: Annotated[Path, typer.Option(help="Where the preset's samples are generated, once.")] = Path(
        "voxload-bench"
    ),
    dataset: Annotated[str, typer.Option(help="Dataset of the catalogue or the files, where there are several.")] = "",
    axes: Annotated[str, typer.Option(help="Order of the stored axes where files do not say, such as CDHW.")] = "",
    allow_outside: AllowOutside = False,
    spatial: Annotated[
        str, typer.Option(help="Blocks d,h,w that each sample is cut into.", show_default="the preset's, or 1,1,1")
    ] = "",
    halo: Annotated[int, typer.Option(help="Voxels around each block.", min=0)] = 0,
    boundary: Annotated[str, typer.Option(help="What lies outside a sample: zero or periodic.")] = "zero",
    batch_size: Annotated[
        int, typer.Option(help="Samples of a sample group's batch.", show_default="the preset's, or 1", min=0)
    ] = 0,
    order: Annotated[str, typer.Option(help=f"Of the samples: {' or '.join(ORDERS)}.")] = SHUFFLED,
    seed: Annotated[int, typer.Option(help="Seed of the order; each repeat has the next one.", min=0)] = 0,
    nproc: Annotated[int, typer.Option(help="Processes to start here; 1 under torchrun, mpiexec, srun.", min=1)] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the samples.", min=1)] = 1,
    steps: Annotated[int, typer.Option(help="Most steps of an epoch; 0 for all.", min=0)] = 0,
    duration: Annotated[float, typer.Option(help="Most seconds of a run; 0 for no limit.", min=0)] = 0.0,
    warmup: Annotated[int, typer.Option(help="First steps of each epoch that AU and latencies leave out.", min=0)] = 1,
    repeats: Annotated[int, typer.Option(help="Runs, for medians and intervals.", min=1)] = 1,
    loader: Annotated[
        str, typer.Option(help="What loads: voxload, torch-h5py, tensorstore...; see the docs.")
    ] = "voxload",
    threads: Annotated[int, typer.Option(help="Threads, or worker processes, of each rank.", min=0)] = Supply().threads,
    prefetch: Annotated[int, typer.Option(help="Batches ahead for each of them.", min=1)] = Supply().prefetch,
    memory: Annotated[str, typer.Option(help="Bytes of each node's memory that keep blocks, such as 8GiB.")] = "",
    disk: Annotated[str, typer.Option(help="Folder on each node's disk that keeps blocks.")] = "",
    disk_size: Annotated[str, typer.Option(help="Bytes of it.")] = "",
    peers: Annotated[str, typer.Option(help=f"How blocks come from other ranks: {', '.join(PEERS)}.")] = "auto",
    policy: Annotated[
        str, typer.Option(help=f"Who keeps which block: {', '.join(policies.NAMES)}.", show_default=CLAIRVOYANT)
    ] = "",
    clairvoyant: Annotated[
        bool | None,
        typer.Option(
            help="Whether voxload uses orders of later epochs, to read ahead of an epoch and to keep blocks.",
            show_default="yes; not with MLPerf's presets",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where batches are delivered: cpu or cuda.")] = "cpu",
    compute: Annotated[
        str, typer.Option(help=f"Emulated computing: {', '.join(KINDS)}.", show_default="sleep where a time is known")
    ] = "",
    compute_time: Annotated[
        str, typer.Option(help="Of a step: 0.32, 320ms, normal:0.32,0.01 ...", show_default="the preset's, or 0")
    ] = "",
    cold: Annotated[str, typer.Option(help=f"When the page cache is emptied: {', '.join(COLD)}.")] = NEVER,
    cold_method: Annotated[str, typer.Option(help=f"How: {', '.join(METHODS)}.")] = "auto",
    hog: Annotated[str, typer.Option(help="Memory to hold so that the page cache cannot, such as 64GiB.")] = "",
    lockstep: Annotated[bool, typer.Option(help="Ranks wait for each other after each step, as in training.")] = True,
    verify: Annotated[bool, typer.Option("--verify", help="Compare blocks with what bench generate wrote.")] = False,
    au_threshold: Annotated[
        float | None,
        typer.Option(help="Exit with status 1 when AU is below, 0 to 1.", show_default="the preset's", min=0, max=1),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the workload and stop.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the result to this JSON file, for compare and report.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a row for each run to this CSV file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Load batches as training would, with computing in make-believe, and say what the storage gave.

    Plain, it starts its ranks itself; under torchrun, mpiexec or srun each process is a rank.
    """
    check_file("--output", output)
    check_file("--csv", csv)
    scaled = Scaled(preset_named(preset), shrink) if preset else None
    if scaled is None and not data:
        raise UsageError("bench run", found="no data", expected="a data set, or a --preset", remedy="see --help")
    published = scaled.preset if scaled else None
    emulation = _emulation(compute, compute_time, scaled, seed)
    keeps_seed = published.clairvoyant if published else True
    workload = Workload(
        samples=Samples(data or str(folder / _name(scaled, num_samples)), dataset, axes, allow_outside),
        share=Share(
            spatial=parse_triple("--spatial", spatial) if spatial else (published.spatial if published else (1, 1, 1)),
            halo=halo,
            boundary=boundary,
            batch_size=batch_size or (published.batch_size if published else 1),
            order=order,
            seed=seed,
        ),
        length=Length(epochs, steps, duration, warmup),
        supply=Supply(
            loader=loader,
            threads=threads,
            prefetch=prefetch,
            memory=parse_bytes(memory) if memory else 0,
            disk=disk,
            disk_bytes=parse_bytes(disk_size) if disk_size else 0,
            peers=peers,
            clairvoyant=keeps_seed if clairvoyant is None else clairvoyant,
            device=device,
            policy=policy,
        ),
        emulation=emulation,
        coldness=Coldness(cold, cold_method, parse_bytes(hog) if hog else 0),
        lockstep=lockstep,
        verify=verify,
        preset=preset,
        scaled=_notes(scaled, data, num_samples),
    )
    if dry_run:
        print(json.dumps(json.loads(workload.to_json()), indent=1))
        return
    threshold = au_threshold if au_threshold is not None or published is None else published.threshold
    if threshold is not None and emulation.kind == "none":
        raise UsageError("--au-threshold", found="no emulated computing", expected="--compute and --compute-time")
    if scaled is not None and not data:
        _generate(scaled, Path(workload.samples.location), num_samples)
    request = Request(workload, repeats, tuple(sys.argv))
    document = _run_with_progress(request, processes=nproc)
    if document is not None:
        _tell(document, output=output, csv=csv, as_json=as_json)
        _judge(document, threshold)


def _emulation(kind: str, seconds: str, scaled: Scaled | None, seed: int) -> Emulation:
    """Return the computing that is asked for, or that of the preset."""
    published = scaled.seconds() if scaled else None
    if not seconds and published is not None and kind != "none":
        seconds = f"{published:.6g}"
    if kind not in ("", "none") and not seconds:
        raise UsageError("--compute", found=f"{kind} without a time", expected="--compute-time")
    if not seconds:
        return Emulation()
    return Emulation(kind or "sleep", seconds, seed)


def _notes(scaled: Scaled | None, data: str, samples: int) -> tuple[str, ...]:
    """Return what is other than published."""
    if scaled is None:
        return ()
    if data:
        return (f"Of preset {scaled.preset.name} everything but the samples, which were there.",)
    return (*scaled.notes(), f"{samples} samples were generated.")


def _name(scaled: Scaled | None, samples: int) -> str:
    return f"{scaled.preset.name}-{'x'.join(map(str, scaled.shape))}-{samples}" if scaled else ""


def _generate(scaled: Scaled, folder: Path, samples: int) -> None:
    """Make the preset's samples where they are not there yet; under a launcher they must be."""
    rank, ranks = launched_as(os.environ)
    if ranks > 1:
        if rank == 0 and not (folder / "catalog.parquet").is_file():
            raise UsageError(
                f"{folder}",
                found="no samples, under a launcher",
                expected="samples that one process generated",
                remedy="run the same command once with --steps 1 and without the launcher",
            )
        return
    with byte_bar(f"generating {scaled.preset.name} ") as show:
        generate(folder, scaled.dataset(samples=samples), progress=show)


def _run_with_progress(request: Request, *, processes: int) -> Document | None:
    """Run behind a progress bar; the bar shows only on a terminal."""
    with count_bar("benchmark", total=0, unit="step") as bar:

        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "run":
                bar.set_description(f"run {event['number'] + 1} of {request.repeats}")
            else:
                bar.update()

        return launch_benchmark(request, processes=processes, hear=hear)


def _tell(document: Document, *, output: Path | None, csv: Path | None, as_json: bool) -> None:
    """Write and print a result."""
    if output is not None:
        document.write(output)
    if csv is not None:
        write_csv([document], csv)
    if as_json:
        print(document.to_json())
    else:
        console = Screen()
        console.print(result_tables(document))
    wrong = [line for each in document.runs for record in each.records for line in record.wrong]
    if wrong:
        raise typer.Exit(_fail(f"{len(wrong)} blocks are wrong, first: {wrong[0]}"))


def _judge(document: Document, threshold: float | None) -> None:
    """Exit with status 1 when utilisation is below what was asked."""
    found = document.median("utilisation")
    if threshold is not None and not found >= threshold:
        raise typer.Exit(_fail(f"AU {found:.1%} is below {threshold:.1%}"))


def _fail(message: str) -> int:
    print(f"voxload: {shown(message)}", file=sys.stderr)
    return 1
