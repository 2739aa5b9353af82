"""The command line: `vllm-raster`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vllm_raster_io import cli_options as opt
from vllm_raster_io import cli_places as places
from vllm_raster_io.client import MapResult, RasterClient
from vllm_raster_io.datasets import accept_missing_reference
from vllm_raster_io.errors import RasterIOError, ServiceError
from vllm_raster_io.previews import preview as picture_of
from vllm_raster_io.schema import SchemaName, schema_text
from vllm_raster_io.sources import ServerPath

app = typer.Typer(no_args_is_help=True, help="Maps rasters with a vLLM server.")
_console = Console()


@app.callback()
def _commands() -> None:
    """Maps rasters with a vLLM server."""
    accept_missing_reference()


@app.command("map")
def map_scene(
    scenes: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENE...",
            help="Raster to map: a file, or, where the server may read it itself, server:PATH or "
            "a URL. For a checkpoint of several dates one each, in order.",
        ),
    ],
    out: Annotated[
        str,
        typer.Argument(
            help="File to write, or, where the server may write it itself, server:PATH or "
            "server:FOLDER/."
        ),
    ],
    url: Annotated[str, typer.Option(help="Of the server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, typer.Option(envvar="VLLM_API_KEY")] = None,
    preview: Annotated[
        Path | None, typer.Option(help="PNG to write: the scene, and the map over it.")
    ] = None,
    overwrite: opt.Overwrite = False,
    bands: opt.Bands = None,
    indices: opt.Indices = None,
    scale: opt.Scale = None,
    offset: opt.Offset = None,
    nodata: opt.Nodata = None,
    prompt: opt.Prompt = None,
    date: opt.Dates = None,
    location: opt.Location = None,
    window: opt.PixelWindow = None,
    bbox: opt.Bbox = None,
    bbox_crs: opt.BboxCrs = None,
    resolution: opt.Resolution = None,
    tile_size: opt.TileSize = None,
    overlap: opt.Overlap = None,
    blending: opt.Blending = None,
    augment: opt.Augmenting = None,
    priority: opt.Priority = None,
    model: opt.Model = None,
    product: opt.Kind = None,
    dtype: opt.DataType = None,
    confidence: opt.ConfidenceFile = None,
    format: opt.FileFormat = None,
    compression: opt.Compressing = None,
    quality: opt.Quality = None,
) -> None:
    """Sends a raster to a server and writes the map that comes back."""
    sources = [places.scene_of(one) for one in scenes]
    place = places.place_of(out)
    shown = None if preview is None else places.local_file(sources[0])
    if preview is not None and not isinstance(place, Path):
        raise typer.BadParameter("--preview shows the map, which must be on this machine for it")
    written_as = format or opt.format_of(out)
    if preview is not None and written_as == "npy":
        raise typer.BadParameter("--preview shows maps in place, which .npy does not tell")
    # What a word may be is for the server to say, which knows its checkpoint.
    arguments: Any = {
        **places.map_fields(place, confidence, overwrite),
        "bands": opt.names_or_numbers(bands),
        "indices": opt.numbers(indices, int),
        "scale": opt.one_or_more(scale),
        "offset": opt.one_or_more(offset),
        "nodata": opt.nodata_of(nodata),
        "prompt": prompt,
        "dates": date,
        "location": opt.numbers(location, float),
        "window": opt.numbers(window, int),
        "bbox": opt.numbers(bbox, float),
        "bbox_crs": bbox_crs,
        "resolution": opt.one_or_more(resolution),
        "tile_size": tile_size,
        "overlap": overlap,
        "blending": blending,
        "augment": augment,
        "priority": priority,
        "product": product,
        "dtype": dtype,
        "format": written_as,
        "compression": compression,
        "quality": quality,
    }
    if isinstance(place, Path):
        places.check_files(place, confidence, preview)
    source = sources[0] if len(sources) == 1 else sources
    try:
        with (
            RasterClient(url, api_key=api_key) as client,
            _console.status(f"Mapping {', '.join(one.rpartition('/')[2] for one in scenes)}"),
        ):
            result = client.map(source, model=model, **arguments)
        _report(result, _written(result, place, confidence))
        if preview is not None and shown is not None:
            preview.write_bytes(picture_of(shown.read_bytes(), result))
            _console.print(f"Wrote {escape(str(preview))}")
    except (ServiceError, RasterIOError, OSError, TypeError) as error:
        _console.print(f"[red]{escape(str(error))}[/red]")
        raise typer.Exit(1) from None


@app.command("schema")
def print_schema(
    name: Annotated[SchemaName, typer.Argument(help="Of the request's `data`, or the answer's.")],
) -> None:
    """Prints what may be asked, or is answered, as JSON Schema."""
    typer.echo(schema_text(name), nl=False)


def _written(result: MapResult, place: Path | ServerPath, confidence: str | None) -> list[str]:
    """Writes what came back, and tells where all of it is."""
    if isinstance(place, ServerPath):
        beside = result.answer.confidence
        there = [result.answer.data, *([] if beside is None else [beside.data])]
        return [f"{places.SERVER}{one}" for one in there]
    written = [result.save(place)]
    if confidence is not None:
        written.append(result.save_confidence(confidence))
    return list(map(str, written))


def _report(result: MapResult, written: Sequence[str]) -> None:
    _console.print(summary(result))
    for note in result.answer.effective.notes:
        _console.print(f"[yellow]{escape(note)}[/yellow]")
    if result.answer.picture is not None:
        _console.print(f"[yellow]{escape(result.answer.picture)}[/yellow]")
    _console.print(f"Wrote {escape(', '.join(written))}")


def summary(result: MapResult) -> Table:
    """A table of what is on a map."""
    answer = result.answer
    title = f"{answer.width} × {answer.height} pixels, {answer.crs or 'no reference'}"
    table = Table(title=title, min_width=len(title))
    table.add_column("class" if answer.classes else answer.product)
    table.add_column("pixels", justify="right")
    for one in answer.classes or ():
        table.add_row(f"[{one.color or 'white'}]■[/] {one.name}", f"{one.pixels:,}")
    if not answer.classes:
        table.add_row("valid", f"{answer.width * answer.height - answer.invalid_pixels:,}")
    table.add_row("nodata", f"{answer.invalid_pixels:,}")
    return table
