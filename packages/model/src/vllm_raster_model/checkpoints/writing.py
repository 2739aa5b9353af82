"""Writing a checkpoint that `vllm serve` starts: all of it, or nothing."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save_file

from vllm_raster_model.checkpoints.cards import model_card
from vllm_raster_model.checkpoints.foreign import ForeignCheckpoint
from vllm_raster_model.checkpoints.names import count_parameters
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import SourceError
from vllm_raster_model.processor import RasterProcessor
from vllm_raster_model.tokenizer import minimal_tokenizer


def write_checkpoint(checkpoint: ForeignCheckpoint, out: Path, *, force: bool = False) -> int:
    """Writes a checkpoint as a folder of this package's own kind.

    Args:
        checkpoint: What to write.
        out: The folder; it appears once it is whole.
        force: Whether it may take the place of a checkpoint that is there.

    Returns:
        Number of parameters.

    Raises:
        SourceError: There is something at `out`, or it cannot be written.
        WeightsError: The weights are not those of the network.
    """
    _check_place(out, checkpoint, force=force)
    try:
        with _new_folder(out) as folder:
            weights = {name: one.contiguous() for name, one in checkpoint.weights()}
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            checkpoint.config.save_pretrained(folder)
            processor_of(checkpoint.config).save_pretrained(folder)
            count = count_parameters(weights)
            card = model_card(checkpoint, out.absolute().name, count)
            (folder / "README.md").write_text(card, encoding="utf-8")
            # safetensors' own are for their owner only.
            shutil.copymode(folder / "README.md", folder / "model.safetensors")
    except OSError as error:
        raise SourceError(f"{out} cannot be written: {error.strerror or error}") from None
    return count


def processor_of(config: RasterConfig) -> RasterProcessor:
    """The processor that belongs to a configuration without a language model."""
    contract = config.contract
    return RasterProcessor(
        minimal_tokenizer(),
        bands=len(contract.input.bands),
        frames=contract.input.frames,
        cell=contract.tile.multiple_of,
        minimum_cells=contract.tile.minimum_cells,
    )


def _check_place(out: Path, checkpoint: ForeignCheckpoint, *, force: bool) -> None:
    if not os.path.lexists(out):
        return
    if not force:
        raise SourceError(f"There is something at {out} already; --force puts this in its place")
    whole = out.resolve()
    if out.is_symlink() or not out.is_dir() or not _is_checkpoint(out):
        raise SourceError(f"{out} is no checkpoint of this package: it is not replaced")
    paths = (checkpoint.source.place, checkpoint.source.weights, Path.cwd())
    if any(one.resolve().is_relative_to(whole) for one in paths):
        raise SourceError(f"{out} holds what is read or where you are: it is not replaced")


def _is_checkpoint(folder: Path) -> bool:
    entries = list(folder.iterdir())
    return not entries or (folder / "processor_config.json").is_file()


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all went well, else is gone."""
    parent = out.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}-") as made:
        folder = Path(made) / "new"
        folder.mkdir()
        yield folder
        if out.exists():
            out.rename(Path(made) / "old")
        folder.rename(out)
        if (old := Path(made) / "old").exists():
            shutil.rmtree(old)
