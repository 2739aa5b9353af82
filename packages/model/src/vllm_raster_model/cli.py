"""The command line: `vllm-raster-model`."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from vllm_raster_model.errors import RasterModelError

app = typer.Typer(
    no_args_is_help=True,
    help="Converts checkpoints for vLLM, looks into them, and at the machine that serves them.",
    pretty_exceptions_enable=False,
)
_console = Console(soft_wrap=True)
_SEVERAL = ("--bands", "--mean", "--std", "--classes", "--coordinates")


class _SeveralValues(TyperCommand):
    """Lets an option be followed by several values: `--mean 1 2` is `--mean 1 --mean 2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeats such an option for each value that follows it, up to the next option."""
        flags = {"--help", *(o for one in self.params if _is_flag(one) for o in one.opts)}
        repeated: list[str] = []
        left, paths = list(args), 0
        while left:
            one = left.pop(0)
            values: list[str] = []
            # Behind the two paths only: in front of them it is not told where the values end.
            most = len(left) if one in _SEVERAL and paths >= 2 else 1
            if not one.startswith("--"):
                paths += 1
            elif one not in flags and "=" not in one:
                while left and len(values) < most and not left[0].startswith("--"):
                    values.append(left.pop(0))
            repeated.extend([f"{one}={value}" for value in values] or [one])
        found: list[str] = super().parse_args(ctx, repeated)
        return found


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


Source = Annotated[
    Path,
    typer.Argument(
        help="TerraTorch's folder for vLLM, a folder with the yaml and ckpt of a training, "
        "or a Prithvi encoder (folder or .pt).",
    ),
]
Bands = Annotated[list[str] | None, typer.Option(help="Names, in the network's order.")]
Mean = Annotated[list[str] | None, typer.Option(help="One a band or one for all, after scaling.")]
Std = Annotated[list[str] | None, typer.Option(help="One a band or one for all, after scaling.")]
Scale = Annotated[float | None, typer.Option(help="From stored counts to the unit of --mean.")]
Offset = Annotated[float | None, typer.Option(help="Added after the factor.")]
Fill = Annotated[
    float | None, typer.Option(help="Stands in for missing pixels, in the unit of --mean.")
]
Tile = Annotated[int | None, typer.Option(min=1, help="Side of the largest window in pixels.")]
Overlap = Annotated[int | None, typer.Option(min=0, help="Pixels that windows share.")]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        help="Names of the classes, or their number; of a regression, names of its values. "
        "With spaces in them: 'dry land,open water'."
    ),
]
Coordinates = Annotated[
    list[str] | None, typer.Option(help="What the network is told: time, location, none.")
]
Unit = Annotated[str | None, typer.Option(help="Of the values of a regression.")]
Task = Annotated[
    str | None, typer.Option(help="Of a bare encoder: features (default) or reconstruction.")
]
Backbone = Annotated[str | None, typer.Option(help="Name of a bare encoder.")]
Frames = Annotated[int | None, typer.Option(min=1, help="Dates in an input of a bare encoder.")]
Weights = Annotated[Path | None, typer.Option(help="File of the weights, if there are several.")]
Config = Annotated[Path | None, typer.Option(help="File of the configuration, likewise.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the checkpoint at OUT.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print json.")]


@app.command(cls=_SeveralValues)
def convert(
    source: Source,
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    bands: Bands = None,
    mean: Mean = None,
    std: Std = None,
    scale: Scale = None,
    offset: Offset = None,
    nodata_fill: Fill = None,
    tile: Tile = None,
    overlap: Overlap = None,
    classes: Classes = None,
    coordinates: Coordinates = None,
    unit: Unit = None,
    task: Task = None,
    backbone: Backbone = None,
    frames: Frames = None,
    weights: Weights = None,
    config: Config = None,
    force: Force = False,
) -> None:
    """Writes a checkpoint of TerraTorch, or a Prithvi encoder, as one that vLLM serves."""
    given = {k: v for k, v in locals().items() if k not in ("source", "out", "force")}
    with _one_line_errors(), _console.status(f"Converting {source}"):
        from vllm_raster_model.checkpoints import Options, read_checkpoint
        from vllm_raster_model.checkpoints.writing import write_checkpoint

        checkpoint = read_checkpoint(source, Options.parse(**given))
        parameters = write_checkpoint(checkpoint, out, force=force)
    for note in checkpoint.notes:
        _console.print(note, markup=False, highlight=False)
    _console.print(f"Wrote {out}: {parameters:,} parameters", markup=False, highlight=False)
    _console.print(f"Serve it: vllm serve {out}", markup=False, highlight=False)


@app.command("inspect")
def inspect_(
    checkpoint: Annotated[Path, typer.Argument(help="Ours, or anything that convert takes.")],
    task: Task = None,
    backbone: Backbone = None,
    frames: Frames = None,
    weights: Weights = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Prints what a checkpoint is, what it eats and what it gives."""
    given = {k: v for k, v in locals().items() if k not in ("checkpoint", "as_json")}
    with _one_line_errors():
        from vllm_raster_model.checkpoints import Options
        from vllm_raster_model.checkpoints.inspection import inspect_checkpoint

        report = inspect_checkpoint(checkpoint, Options.parse(**given)).as_dict()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    _console.print(_table(report))
    for note in report["notes"]:
        _console.print(note, markup=False, highlight=False)
    if missing := report["missing_options"]:
        _console.print(f"To convert it, give {', '.join(missing)}", markup=False, highlight=False)


@app.command()
def doctor(
    checkpoint: Annotated[Path | None, typer.Argument(help="What is to be served.")] = None,
    as_json: AsJson = False,
) -> None:
    """Looks whether this machine can serve, and what keeps it from being fast."""
    with _one_line_errors():
        from vllm_raster_model.doctor import examine

        summary, advice = examine(checkpoint)
    if as_json:
        told = [asdict(one) for one in advice]
        typer.echo(json.dumps({"machine": summary, "advice": told}, indent=2))
    else:
        for name, value in summary.items():
            if value not in (None, [], ""):
                _console.print(f"{name.replace('_', ' ')}: {_shown(value)}", highlight=False)
        for one in advice:
            _console.print(f"{one.topic}: {one.text}", markup=False, style="bold")
        if not advice:
            _console.print("Nothing to do.")
    if any(one.stops for one in advice):
        raise typer.Exit(1)


@app.command()
def precision(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that vLLM serves.")],
    scenes: Annotated[
        list[Path], typer.Argument(help="Real ones, as it will map: GeoTIFF, or arrays as .npy.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
) -> None:
    """Compares maps in bfloat16 with those in float32, and notes how much of them agrees.

    The note in the checkpoint is that of the worst scene; a server reads it.
    """
    with _one_line_errors():
        from vllm_raster_model.agreement import Comparison, read_scene, record

        comparison, worst = Comparison(checkpoint), 1.0
        for path in scenes:
            found = comparison.of(*read_scene(path))
            worst = min(worst, found.share)
            line = f"{path}: {found.share:.3%} of {found.pixels:,} pixels are the same"
            _console.print(line, markup=False, highlight=False)
        if not dry_run:
            record(checkpoint, worst)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Says what went wrong in one line, with the exit code 1."""
    logger = logging.getLogger("vllm.raster.model")
    level = logger.level
    logger.setLevel(logging.ERROR)  # notes are printed once all went well
    try:
        yield
    except (RasterModelError, OSError, MemoryError) as error:
        line = " ".join(str(error).split()) or type(error).__name__
        typer.secho(line, err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from None
    finally:
        logger.setLevel(level)


def _table(report: dict[str, Any]) -> Table:
    table = Table(show_header=False, title=report["what"])
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("parameters", f"{report['parameters']:,}")
    for part in ("input", "tile", "output"):
        for key, value in report["raster"].get(part, {}).items():
            if value not in (None, [], ()):
                table.add_row(f"{part} {key}", _shown(value))
    for key, value in report["network"].items():
        if value is not None:
            table.add_row(f"network {key}", _shown(value))
    return table


def _shown(value: object, most: int = 24) -> str:
    """A value in few words; of long lists the beginning."""
    from rich.markup import escape

    if isinstance(value, (list, tuple)):
        names = [one.get("name", one) if isinstance(one, dict) else one for one in value[:most]]
        more = f" and {len(value) - most} more" if len(value) > most else ""
        return escape(", ".join(map(str, names)) + more)
    if isinstance(value, dict):
        return escape(", ".join(f"{key}={one}" for key, one in value.items()))
    return escape(str(value))
