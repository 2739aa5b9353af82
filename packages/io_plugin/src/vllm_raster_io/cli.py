"""The command line: `vllm-raster`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from vllm_raster_io.client import MapResult, RasterClient
from vllm_raster_io.datasets import accept_missing_reference
from vllm_raster_io.errors import RasterIOError, ServiceError
from vllm_raster_io.previews import class_preview

app = typer.Typer(no_args_is_help=True, help="Maps rasters with a vLLM server.")
_console = Console()

Number = TypeVar("Number", int, float)


@app.callback()
def _commands() -> None:
    """Maps rasters with a vLLM server."""
    accept_missing_reference()


@app.command("map")
def map_scene(
    scenes: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCENE...",
            exists=True,
            dir_okay=False,
            help="Raster to map; for a checkpoint of several dates one file each, in order.",
        ),
    ],
    out: Annotated[Path, typer.Argument(help="GeoTIFF to write.")],
    url: Annotated[str, typer.Option(help="Of the server.")] = "http://127.0.0.1:8000",
    indices: Annotated[
        str | None,
        typer.Option(help="Bands of the file, from 0, in the checkpoint's order: 2,1,0,3"),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="What to map, where the checkpoint has a language model.")
    ] = None,
    date: Annotated[
        list[str] | None,
        typer.Option(
            help="When it was taken, as 2024-02-29; one for each date of the checkpoint. Without "
            "it the server reads the files' tags."
        ),
    ] = None,
    location: Annotated[
        str | None,
        typer.Option(help="Latitude,longitude in degrees, where the file does not tell: -23.5,14"),
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="PNG to write: the classes over the scene, with a legend.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="VLLM_API_KEY")] = None,
) -> None:
    """Sends a raster to a server and writes the map that comes back."""
    bands = None if indices is None else _numbers(indices, int)
    place = None if location is None else _numbers(location, float)
    source = scenes[0] if len(scenes) == 1 else scenes
    try:
        with (
            RasterClient(url, api_key=api_key) as client,
            _console.status(f"Mapping {', '.join(one.name for one in scenes)}"),
        ):
            result = client.map(source, indices=bands, prompt=prompt, dates=date, location=place)
        result.save(out)
        if preview is not None:
            preview.write_bytes(class_preview(scenes[0].read_bytes(), result))
    except (ServiceError, RasterIOError, OSError) as error:
        _console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from None
    _console.print(summary(result))
    for note in result.answer.effective.notes:
        _console.print(f"[yellow]{note}[/yellow]")
    _console.print(f"Wrote {out}" + (f" and {preview}" if preview is not None else ""))


def summary(result: MapResult) -> Table:
    """A table of what is on a map."""
    answer = result.answer
    title = f"{answer.width} × {answer.height} pixels, {answer.crs or 'no reference'}"
    table = Table(title=title, min_width=len(title))
    table.add_column("class" if answer.classes else answer.kind)
    table.add_column("pixels", justify="right")
    for one in answer.classes or ():
        table.add_row(f"[{one.color or 'white'}]■[/] {one.name}", f"{one.pixels:,}")
    if not answer.classes:
        table.add_row("valid", f"{answer.width * answer.height - answer.invalid_pixels:,}")
    table.add_row("nodata", f"{answer.invalid_pixels:,}")
    return table


def _numbers(text: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"must be numbers and commas, got {text!r}") from None
