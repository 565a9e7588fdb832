"""VoxloadDataLoader: DLIO's data loader, reading by voxload's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from dlio_benchmark.common.enumerations import DataLoaderSampler, DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.data_loader.torch_data_loader import dlio_sampler
from dlio_benchmark.framework.framework_factory import FrameworkFactory
from dlio_benchmark.utils.utility import DLIOMPI
from mpi4py import MPI

from voxload.benchmark.dlio.journal import Journal, journal_path
from voxload.benchmark.dlio.settings import Options, Settings, refuse_preprocessing
from voxload.benchmark.dlio.supply import Item, Place, Plan, Supply, by_index, by_thread, in_turns, size_of
from voxload.errors import UsageError


class VoxloadDataLoader(BaseDataLoader):  # type: ignore[misc] # DLIO has no types
    """Gives DLIO's loop the batches that its workload asks for, in DLIO's order; one for training, one for evaluation.

    Name it in ``workload.reader.data_loader_classname``, and a ``data_loader_sampler`` of ``index`` or ``iterative``.
    A batch is a list of samples. That of training writes ``voxload_dlio_RANK.json`` into the output folder: each step
    as `voxload.benchmark.measure.record` has it, where ``peers`` is all that is neither loading nor computing: the wait
    for other ranks, DLIO's log, and a late awakening.

    Raises
    ------
    UsageError
        For workloads that voxload cannot load, see `Settings`, and options that are none, see `Options`.
    """

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)
        self._is_training = dataset_type is DatasetType.TRAIN
        self._supply: Supply | None = None
        self._samplers: list[Any] = []
        self._journal: Journal | None = None

    def read(self) -> None:
        """Open the files' first one, and be ready for the first epoch; raises what `Supply` raises."""
        refuse_preprocessing(self._args)
        self._plan = Plan.of(Settings.of(self._args, is_training=self._is_training), Options.of(os.environ))
        self._samplers = self._samplers_of_group()
        self._open()
        if self._is_training:
            self._journal = self._new_journal()

    def next(self) -> Iterator[list[Item]]:
        """Yield the batches of an epoch."""
        if self._journal is not None:
            self._journal.clock.begin()
        order = self._order()
        if self._supply is None or not self._supply.has(order):
            self._open()  # MLCommons' fork deals files anew between epochs
        if self._supply is not None:
            yield from self._timed(self._supply.epoch(order))
        self.epoch_number += 1

    def finalize(self) -> None:
        """End an epoch: note what was measured; every rank calls it."""
        if self._journal is not None and self._supply is not None:
            clock, world = self._journal.clock, DLIOMPI.get_instance().comm()
            slowest = np.array([clock.unsettled])
            world.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)  # bare numbers: with a small letter it sends pickles
            clock.settle(float(slowest[0]))
            self._journal.end_epoch(self._supply.counts())

    def _open(self) -> None:
        if self._supply is not None:
            self._supply.close()
        self._supply = Supply(self._files(), self._plan)

    def _timed(self, batches: Iterator[list[Item]]) -> Iterator[list[Item]]:
        """Yield batches, and tell the clock when they are asked for, are here, and are done with."""
        if self._journal is None:
            yield from batches
            return
        clock = self._journal.clock
        for batch in batches:
            clock.came(samples=len(batch), nbytes=size_of(batch))
            try:
                yield batch
            except GeneratorExit:
                clock.left()
                raise
            clock.done()
        clock.exhausted()

    def _order(self) -> list[Place]:
        """Return the samples of this rank's group in the epoch at hand."""
        if self._samplers:
            drawn = in_turns([list(sampler) for sampler in self._samplers], self._plan.settings.batch_size)
            return by_index(drawn, self._files(), per_file=self._plan.settings.per_file)
        listed = self._args.train_file_map if self._is_training else self._args.val_file_map
        return by_thread(listed, self._plan.settings.batch_size)

    def _files(self) -> list[str]:
        listed = self._args.file_list_train if self._is_training else self._args.file_list_eval
        return [os.path.abspath(path) for path in listed]  # noqa: PTH100 - as DLIO names them, and fast for many

    def _samplers_of_group(self) -> list[Any]:
        """Return DLIO's own index samplers of the ranks of this rank's group; none for its iterative sampler.

        They last as long as the loader: some releases shuffle, epoch by epoch, what they have shuffled before.
        """
        grid = self._plan.grid
        is_index = self._args.data_loader_sampler is DataLoaderSampler.INDEX
        if grid.group_size > 1:
            self._check_shared(is_index=is_index)
        if not is_index:
            return []
        known = {
            "size": grid.world_size,
            "num_samples": self.num_samples,
            "shuffle": self._args.sample_shuffle,
            "epochs": self._args.epochs,
            "seed": self._args.seed,
        }
        wanted = signature(dlio_sampler).parameters  # which differ between releases
        fitting = {name: value for name, value in known.items() if name in wanted}
        return [dlio_sampler(rank=rank, **fitting) for rank in grid.group_ranks]

    def _check_shared(self, *, is_index: bool) -> None:
        """Refuse what gives each rank samples of which the other ranks of its group do not know."""
        wrong = {
            "workload.reader.data_loader_sampler": "" if is_index else "iterative",
            "workload.reader.sample_shuffle": "random" if self._args.sample_shuffle is Shuffle.RANDOM else "",
            "release of DLIO": "one that gives each rank a file list of its own"
            if getattr(self._args, "files_pre_sharded", False)
            else "",
        }
        for subject, found in wrong.items():
            if found:
                raise UsageError(
                    subject,
                    found=f"{found}, and ranks that share samples",
                    expected="an order that all ranks of a sample group can work out",
                    remedy="use data_loader_sampler=index with sample_shuffle=seed or off, or leave out the split",
                )

    def _new_journal(self) -> Journal:
        """Return a journal whose clock sees DLIO compute: nothing that DLIO tells a loader says how long it took."""
        journal = Journal(journal_path(Path(self._args.output_folder), self._plan.settings.rank), self._args.my_rank)
        framework = FrameworkFactory.get_framework(self._args.framework, self._args.do_profiling)
        framework.compute = journal.clock.timed(framework.compute)
        return journal
