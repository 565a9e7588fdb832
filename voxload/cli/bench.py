"""``voxload bench``: the commands of the I/O benchmark."""

from __future__ import annotations

import typer

from voxload.cli.bench_compare import EPILOG as COMPARE_EPILOG
from voxload.cli.bench_compare import compare
from voxload.cli.bench_generate import EPILOG as GENERATE_EPILOG
from voxload.cli.bench_generate import generate
from voxload.cli.bench_report import EPILOG as REPORT_EPILOG
from voxload.cli.bench_report import report
from voxload.cli.bench_run import EPILOG as RUN_EPILOG
from voxload.cli.bench_run import run
from voxload.cli.bench_sweep import EPILOG as SWEEP_EPILOG
from voxload.cli.bench_sweep import sweep

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure how fast a storage feeds a network.")
app.command(epilog=GENERATE_EPILOG)(generate)
app.command(epilog=RUN_EPILOG)(run)
app.command(epilog=SWEEP_EPILOG)(sweep)
app.command(epilog=COMPARE_EPILOG)(compare)
app.command(epilog=REPORT_EPILOG)(report)
