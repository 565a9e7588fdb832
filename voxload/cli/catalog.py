"""``voxload catalog``: the commands for tables of samples."""

from __future__ import annotations

import typer

from voxload.cli.catalog_filter import EPILOG as FILTER_EPILOG
from voxload.cli.catalog_filter import filter_catalog
from voxload.cli.catalog_list import EPILOG as LIST_EPILOG
from voxload.cli.catalog_list import list_catalog
from voxload.cli.catalog_merge import EPILOG as MERGE_EPILOG
from voxload.cli.catalog_merge import merge_catalogs
from voxload.cli.catalog_split import EPILOG as SPLIT_EPILOG
from voxload.cli.catalog_split import split_catalog

app = typer.Typer(name="catalog", no_args_is_help=True, help="List, merge, split and filter catalogues.")
app.command("list", epilog=LIST_EPILOG)(list_catalog)
app.command("merge", epilog=MERGE_EPILOG)(merge_catalogs)
app.command("split", epilog=SPLIT_EPILOG)(split_catalog)
app.command("filter", epilog=FILTER_EPILOG)(filter_catalog)
