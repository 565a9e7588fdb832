"""``voxload plan calibrate``: measure this machine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from voxload.cli.options import check_file
from voxload.cli.terminal import Screen, count_bar
from voxload.errors import UsageError
from voxload.grid import is_launched
from voxload.launch.devices import DEVICES, HOST
from voxload.plan.calibration.between import measure_between, write_between
from voxload.plan.calibration.run import calibrate, own_ranks
from voxload.plan.calibration.storage import measure_storage
from voxload.plan.platform import files
from voxload.units import format_bytes

EPILOG = "Example: voxload plan calibrate --output node.toml"
"""Shown at the end of the command's help."""


def calibrate_machine(
    *,
    output: Annotated[Path, typer.Option(help="File of the machine.")] = Path("machine.toml"),
    ranks: Annotated[
        int, typer.Option(help="Ranks that a node is to have.", min=0, show_default="its cores, or its GPUs")
    ] = 0,
    seconds: Annotated[float, typer.Option(help="Seconds for operations; messages take some besides.", min=5.0)] = 80.0,
    device: Annotated[str, typer.Option(help=f"What each rank computes on: {' or '.join(DEVICES)}.")] = HOST,
    storage: Annotated[
        Path | None,
        typer.Option(help="Folder of the storage to measure, and memory and decoding.", show_default="none"),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the machine.", show_default="that of the host")] = "",
) -> None:
    """Measure operations, messages and sums of this machine, and write a file that plans are made with.

    All of its cores or GPUs are busy meanwhile: ranks are to be as slow as they are among their neighbours. Under a
    launcher, with all ranks of two nodes or more, the network between nodes is measured and put into the file.
    """
    if is_launched(os.environ):
        _between(output, device)
        return
    check_file("--output", output)
    own = ranks or own_ranks(device)
    stored = None if storage is None else measure_storage(storage, own)
    with count_bar("measuring", total=int(seconds), unit="s") as bar:

        def show(spent: float) -> None:
            bar.update(max(0, int(spent) - bar.n))

        found = calibrate(ranks=ranks, seconds=seconds, device=device, hear=show)
    files.write(found, output, name=name or platform.node() or os.name, day=datetime.now(UTC).date(), storage=stored)
    console = Screen()
    points = sum(len(each.points) for each in found.kernels)
    console.print(f"{output}: {points} operations of {len(found.kernels)} kinds, {found.ranks} ranks at once")
    if stored is not None:
        reads = ", ".join(f"{format_bytes(int(rate))}/s by {count}" for count, rate in stored.reads)
        decoding = format_bytes(int(stored.decoding))
        console.print(f"{storage}: a request {1e3 * stored.latency:.3g} ms; {reads}; decoding {decoding}/s")
    for each in found.sharing:
        if each.ranks > 1:
            console.print(
                f"{each.ranks} ranks: a message {1e3 * each.latency:.3g} ms, a sum {1e3 * each.sum_latency:.3g} ms, "
                f"gradients {1e3 * each.gradients:.3g} ms; computing {each.computing:.3g} times as long apart, "
                f"{each.computing * each.blocks:.3g} with blocks of one sample; off by {each.error:.0%}"
            )


def _between(output: Path, device: str) -> None:
    """Measure the network between nodes, on all ranks of a job; the first one writes and tells."""
    if not output.is_file():
        raise UsageError(
            f"--output {output}",
            found="no such file",
            expected="that of one node",
            remedy="calibrate one node first, without a launcher",
        )
    link = measure_between(files.load(os.fspath(output)).ranks_per_node, device)
    if link is None:
        return
    write_between(output, link)
    speed = format_bytes(int(1 / max(link.seconds_per_byte, 1e-15)))
    Screen().print(f"{output}: between nodes a message {1e3 * link.latency:.3g} ms, {speed}/s of a node")
