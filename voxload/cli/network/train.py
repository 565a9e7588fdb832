"""``voxload train``: a network on the user's own catalogue, split over ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from voxload.catalog.table import Catalog
from voxload.cli.network.report import report, report_population, train_as_rank, train_population
from voxload.cli.options import (
    AllowOutside,
    catalog_at,
    check_file,
    check_folder,
    parse_extents,
    parse_names,
    parse_triple,
)
from voxload.cli.planning.applied import refuse_beside_plan, training_choice
from voxload.cli.terminal import Screen
from voxload.errors import UsageError
from voxload.launch.devices import DEVICES, HOST
from voxload.loader.cache import CLAIRVOYANT, CODECS, PEERS, Cache
from voxload.parallel.tournament.tournament import PAIRS, TRUNCATION, Rules
from voxload.prefetch import policies
from voxload.training.plan import ADAM, COSMOFLOW, DTYPES, RATES, UNET3D, Optimisation, TrainingPlan
from voxload.training.tensorboard import check_tensorboard

EPILOG = "Example: voxload train universes/ --model cosmoflow --spatial 2,1,1 --epochs 5 --nproc 4"
"""Shown at the end of the command's help."""


def train(
    catalog: Annotated[str, typer.Argument(help="A catalogue, its folder, or the URL of either.", show_default=False)],
    *,
    model: Annotated[str, typer.Option(help=f"The network: {COSMOFLOW}, or {UNET3D} for labels.")] = COSMOFLOW,
    variant: Annotated[
        str,
        typer.Option(
            help="Of the network: mlperf or lbann, for the U-Net kits19 or lbann.", show_default="mlperf, kits19"
        ),
    ] = "",
    widths: Annotated[
        str, typer.Option(help="Channels of the U-Net's levels, such as 8,16,32.", show_default="the variant's")
    ] = "",
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Network, blocks, batch and ranks as voxload plan says; a plan for Adam in float32 under DDP.",
            show_default=False,
        ),
    ] = None,
    spatial: Annotated[str, typer.Option(help="Blocks d,h,w that each sample is cut into.")] = "1,1,1",
    nproc: Annotated[
        int, typer.Option(help="Processes to start here, a multiple of the blocks; 1 under a launcher.", min=1)
    ] = 1,
    device: Annotated[
        str, typer.Option(help=f"What each process computes on: {' or '.join(DEVICES)}, a GPU of its own.")
    ] = HOST,
    epochs: Annotated[int, typer.Option(help="Passes over the training samples.")] = Optimisation().epochs,
    batch_size: Annotated[
        int, typer.Option(help="Samples of one sample group in one step.")
    ] = Optimisation().batch_size,
    optimizer: Annotated[str, typer.Option(help=f"What finds the weights: {' or '.join(RATES)}.")] = ADAM,
    lion_combine: Annotated[
        str, typer.Option(help="How groups' updates become one: exact, majority, p-bit or mean.")
    ] = Optimisation().lion_combine,
    lion_bits: Annotated[
        int, typer.Option(help="Bits of a number of an update: 1, 2, 4 or 8.", show_default="1, p-bit 4")
    ] = 0,
    lion_momentum: Annotated[
        int, typer.Option(help="Steps between averages of a tensor's momentum; 0 for none.", min=0)
    ] = 0,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="The step size at its highest.",
            show_default=", ".join(f"{each} {size:g}" for each, size in RATES.items()),
        ),
    ] = None,
    dropout: Annotated[float, typer.Option(help="Share of CosmoFlow's head that is dropped.")] = Optimisation().dropout,
    validation: Annotated[float, typer.Option(help="Share of the samples that is held out.")] = 0.125,
    dataset: Annotated[str, typer.Option(help="Dataset to train on, where there are several.")] = "",
    targets: Annotated[
        str, typer.Option(help="Targets that CosmoFlow predicts, with commas.", show_default="all")
    ] = "",
    labels: Annotated[
        str, typer.Option(help="Dataset with a class for each voxel, for the U-Net.", show_default=False)
    ] = "",
    classes: Annotated[
        int, typer.Option(help="Classes of the labels, the background among them.", show_default=False)
    ] = 0,
    patch: Annotated[
        str, typer.Option(help="Extents d,h,w of patches that the U-Net trains on.", show_default="whole samples")
    ] = "",
    patches: Annotated[int, typer.Option(help="Patches of each sample in an epoch.", min=1)] = 4,
    around_classes: Annotated[
        bool, typer.Option("--around-classes", help="Lay patches around voxels of each class as often.")
    ] = False,
    log1p: Annotated[bool, typer.Option(help="Take log(1 + voxel) first, for counts.")] = True,
    follow: Annotated[
        bool, typer.Option("--follow", help="Train on samples that others append, from the next epoch on.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of weights, orders and the split.", min=0)] = 0,
    dtype: Annotated[
        str, typer.Option(help=f"Type to compute in: {' or '.join(DTYPES)}, the wide one to compare runs.")
    ] = Optimisation().dtype,
    memory: Annotated[
        str, typer.Option(help="Memory of each node that keeps blocks, such as 8GiB.", show_default=False)
    ] = "",
    disk: Annotated[
        Path | None, typer.Option(help="Folder on each node's own disk that keeps blocks.", show_default=False)
    ] = None,
    disk_size: Annotated[str, typer.Option(help="Bytes of it on each node, such as 500GiB.", show_default=False)] = "",
    codec: Annotated[
        str, typer.Option(help=f"How blocks are kept there: {' or '.join(CODECS)}.", show_default=CODECS[0])
    ] = "",
    peers: Annotated[
        str, typer.Option(help=f"How blocks come from other ranks: {', '.join(PEERS)}.", show_default=PEERS[0])
    ] = "",
    policy: Annotated[
        str, typer.Option(help=f"Who keeps what: {', '.join(policies.NAMES)}.", show_default=CLAIRVOYANT)
    ] = "",
    clairvoyant: Annotated[
        bool, typer.Option(help="Use orders beyond the epoch at hand, to read ahead of it and to keep blocks.")
    ] = True,
    prometheus: Annotated[
        Path | None,
        typer.Option(help="File *.prom that gets all ranks' figures after each epoch.", show_default=False),
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard's logs.", show_default=False)] = None,
    trainers: Annotated[
        int, typer.Option(help="Trainers with a part of the samples each, which play a tournament.", min=1)
    ] = 1,
    tournament_every: Annotated[int, typer.Option(help="Steps between its rounds.", min=1)] = Rules().every,
    tournament_selection: Annotated[
        str, typer.Option(help=f"Who meets whom: {PAIRS}, or {TRUNCATION} for the worst and the best.")
    ] = Rules().selection,
    tournament_mutate: Annotated[
        bool, typer.Option("--tournament-mutate", help="Change the step size with the model.")
    ] = False,
    tournament_optimizer: Annotated[
        bool, typer.Option("--tournament-optimizer", help="Exchange the optimiser's moments with the model.")
    ] = False,
    tournament_patience: Annotated[
        float, typer.Option(help="Seconds to wait for another trainer, which then forfeits.")
    ] = Rules().patience,
    output: Annotated[Path, typer.Option(help="Folder for weights, checkpoint, result and pictures.")] = Path(
        "train-report"
    ),
    checkpoint_every: Annotated[
        int, typer.Option(help="Steps between checkpoints, besides those of each epoch.", min=0, show_default=False)
    ] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in OUTPUT.")] = False,
    allow_outside: AllowOutside = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a network on blocks of samples that several processes share.

    Runs on the CPUs or GPUs of this machine; under torchrun, mpiexec or srun each process is a rank.

    The weights in OUTPUT/model.pt load into the ordinary, unsplit network.

    --resume goes on from OUTPUT/checkpoint.pt as if nothing had happened, also with other --spatial and --nproc.

    With --patch the U-Net learns from patches at random places, drawn anew each epoch, and is judged by patches that
    cover the held-out samples, which may be of many shapes.

    With --follow, held-out samples stay what they are when others append to the catalogue, and all new ones are
    trained on; scales are those of the samples that were there when the run began.

    --memory, and --disk with --disk-size, keep blocks near, so that the storage is read once; results stay the same.

    Sizes are of a node; held-out samples have their share of them.
    """
    check_file("--prometheus", prometheus)
    check_folder("--output", output)
    if tensorboard is not None:
        check_folder("--tensorboard", tensorboard)
        check_tensorboard()
    if model == UNET3D and dropout:
        raise UsageError("--dropout", found=f"{dropout} for {UNET3D}", expected="none: it has no such layer")
    if optimizer not in RATES:
        raise UsageError("--optimizer", found=repr(optimizer), expected=" or ".join(RATES))
    rate = RATES[optimizer] if learning_rate is None else learning_rate
    blocks, layers = parse_triple("--spatial", spatial), dict[str, str]()
    recompute: tuple[str, ...] = ()
    if plan_file is not None:
        usual = Optimisation()
        refuse_beside_plan(
            ("--spatial", spatial, "1,1,1"),
            ("--batch-size", batch_size, usual.batch_size),
            ("--model", model, COSMOFLOW),
            ("--variant", variant, ""),
            ("--dtype", dtype, usual.dtype),
        )
        chosen = training_choice(plan_file, nproc)
        model, variant, blocks, layers = chosen.model, chosen.variant, chosen.spatial, chosen.layers
        recompute, memory = chosen.recompute, memory or (str(chosen.cache) if chosen.cache else "")
        batch_size, nproc = chosen.batch_size, chosen.processes
        samples = Catalog.read(catalog_at(catalog), allow_outside=allow_outside)
        names = [dataset] if dataset else [each for each in samples.datasets if each != labels]
        extents = parse_triple("--patch", patch) if patch else ()
        chosen.check_sample(samples, names, extents, allow_outside=allow_outside)
    words = {"memory": memory, "disk": disk and os.fspath(disk), "disk_size": disk_size}
    words |= {"codec": codec, "peers": peers, "policy": policy}
    given: dict[str, Any] = {name: value for name, value in words.items() if value}
    plan = TrainingPlan(
        catalog=catalog_at(catalog),
        output=os.fspath(output),
        model=model,
        variant=variant,
        widths=parse_extents("--widths", widths) if widths else (),
        dataset=dataset,
        labels=labels,
        classes=classes,
        targets=parse_names(targets),
        spatial=blocks,
        layers=layers,
        recompute=recompute,
        device=device,
        validation=validation,
        log1p=log1p,
        optimisation=Optimisation(
            *(epochs, batch_size, rate, dropout, seed, dtype),
            optimizer=optimizer,
            lion_combine=lion_combine,
            lion_bits=lion_bits,
            lion_momentum=lion_momentum,
        ),
        cache=Cache(**given, clairvoyant=clairvoyant) if given else None,
        prometheus="" if prometheus is None else os.fspath(prometheus),
        tensorboard="" if tensorboard is None else os.fspath(tensorboard),
        checkpoint_every=checkpoint_every,
        resume=resume,
        allow_outside=allow_outside,
        patch=parse_triple("--patch", patch) if patch else (),
        patches=patches,
        around_classes=around_classes,
        follow=follow,
        trainers=trainers,
        clairvoyant=clairvoyant,
        tournament=Rules(
            tournament_every,
            selection=tournament_selection,
            with_optimizer=tournament_optimizer,
            mutate=tournament_mutate,
            patience=tournament_patience,
        ),
    )
    if trainers > 1:
        result = train_population(plan, processes=nproc)
    else:
        result = train_as_rank(plan, processes=nproc, label="training")
    if result is None:  # another rank than the first
        return
    if as_json:
        print(result.to_json())
        return
    console = Screen()
    lack = report(result, output, console=console)
    if trainers > 1:
        report_population(plan, console=console)
    if lack:
        console.print(f"Weights and result are in {output}/; {lack}, and --resume draws them.")
    else:
        console.print(f"Weights, result and pictures are in {output}/.")
