"""Reading tensors out of other people's files without running anything that is in them.

A PyTorch file is a pickle, which may name any function to be called. PyTorch's own reader of
weights calls none but those that rebuild tensors, and refuses the rest. Files of Lightning hold
the training's settings beside the weights, with objects of classes that have nothing to do with
them: such an object becomes a `_Bookkeeping`, which is none of that class and does nothing. Any
other class or function makes the file refused, by name.
"""

import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open

from vllm_raster_model.checkpoints.documents import one_line
from vllm_raster_model.errors import WeightsError

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
_LARGEST_PICKLE = 64 * 2**20
"""What is in a file besides the numbers themselves: names, shapes, a training's settings."""
_LARGEST_SAFETENSORS_HEADER = 64 * 2**20
_BOOKKEEPING = (
    "terratorch.",
    "torchgeo.",
    "lightning.",
    "lightning_utilities.",
    "pytorch_lightning.",
    "lightning_fabric.",
    "torchmetrics.",
    "jsonargparse.",
    "omegaconf.",
    "albumentations.",
    "pathlib.",
    "datetime.",
    "numpy.",
    "argparse.",
    "enum.",
    "torch.optim.",
    "torch.nn.modules.",
    "builtins.getattr",
    "builtins.slice",
    "builtins.frozenset",
    "builtins.range",
    "collections.defaultdict",
    "typing.",
)


class _Bookkeeping:
    """Stands for an object of a class that is neither needed nor imported."""

    def __new__(cls, *_: object, **__: object) -> Self:
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        return

    def __setstate__(self, _: object) -> None:
        return

    def __hash__(self) -> int:
        return id(self)

    def append(self, _: object) -> None:
        """As a list takes what is put into it."""

    def extend(self, _: object) -> None:
        """As a list takes what is put into it."""

    def __setitem__(self, _: object, __: object) -> None:
        """As a mapping takes what is put into it."""


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a file, under the names that they have there.

    Args:
        path: A safetensors file, or one of PyTorch's; that holds them as a whole, or under
            `state_dict`, as Lightning's and TerraTorch's do, or under `model`.

    Returns:
        The tensors, on the CPU; of a file that can be mapped into memory they are read when used.

    Raises:
        WeightsError: The file is broken, holds something that could be run, or no weights.
    """
    if not path.is_file():
        raise WeightsError(f"There is no file {path}")
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"{path} is no file of weights; those end in {', '.join(SUFFIXES)}")
    return _named_tensors(path, _pickled(path))


def holds_an_encoder(path: Path) -> bool:
    """Whether a file holds the weights of a Prithvi encoder; False where it cannot be read."""
    try:
        if path.suffix == ".safetensors":
            _check_header(path)
            with safe_open(path, framework="pt") as stored:
                names = list(stored.keys())
        else:
            names = list(read_tensors(path))
    except (WeightsError, SafetensorError, OSError):
        return False
    return any(one.endswith("patch_embed.proj.weight") for one in names)


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            (header,) = struct.unpack("<Q", file.read(8))
        if header > min(_LARGEST_SAFETENSORS_HEADER, path.stat().st_size):
            raise WeightsError(f"{path} is broken: a header of {header:,} bytes")
    except (OSError, struct.error) as error:
        raise _broken(path, error) from None


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise _broken(path, error) from None


def _pickled(path: Path) -> Any:
    zipped = zipfile.is_zipfile(path)
    harmless: list[str] = []
    try:
        if zipped:
            _check_size(path)
            unknown = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
            harmless = [one for one in unknown if one.startswith(_BOOKKEEPING)]
            if others := sorted(set(unknown) - set(harmless)):
                raise _runs_code(path, ", ".join(others[:5]))
        stubs = [(_Bookkeeping, name) for name in harmless]
        with torch.serialization.safe_globals(stubs), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise _runs_code(path, one_line(error)) from None
    except WeightsError:
        raise
    except (Exception, RecursionError) as error:
        # PyTorch's reader says what is wrong with a file in errors of many kinds.
        raise _broken(path, error) from None


def _check_size(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for one in archive.infolist():
            if one.file_size != one.compress_size:
                raise WeightsError(f"{path} is not as PyTorch writes it: {one.filename} is packed")
            if one.filename.endswith("data.pkl") and one.file_size > _LARGEST_PICKLE:
                raise WeightsError(f"{path} has {one.file_size:,} bytes besides its numbers")


def _named_tensors(path: Path, whole: Any) -> dict[str, torch.Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(whole, Mapping) and isinstance(whole.get(key), Mapping):
            whole = whole[key]
            break
    if not isinstance(whole, Mapping) or not whole:
        raise WeightsError(f"{path} holds no weights by name, but {type(whole).__name__}")
    for name, one in whole.items():
        if not isinstance(name, str) or not isinstance(one, torch.Tensor):
            raise WeightsError(
                f"{path} must hold weights by name, got {type(one).__name__} for {name!r}"
            )
        if one.layout != torch.strided or one.device.type != "cpu" or one.is_quantized:
            raise WeightsError(f"{path}: {name} is no plain tensor")
    return dict(whole)


def _runs_code(path: Path, what: str) -> WeightsError:
    return WeightsError(
        f"{path} names what is no weight and is not run ({what}); where you trust the file, load "
        "it yourself and save its state_dict alone: torch.save(whole['state_dict'], FILE)"
    )


def _broken(path: Path, error: BaseException) -> WeightsError:
    return WeightsError(f"{path} cannot be read, it may be broken: {one_line(error)}")
