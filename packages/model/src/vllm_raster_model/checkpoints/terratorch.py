"""TerraTorch's fine-tunes: folders for vLLM, and training runs."""

from typing import Any

from vllm_raster_model.checkpoints.data_modules import Fed, read_data
from vllm_raster_model.checkpoints.facts import Facts
from vllm_raster_model.checkpoints.model_arguments import FineTune, read_model
from vllm_raster_model.checkpoints.settings import MOST, Settings, shown
from vllm_raster_model.checkpoints.sources import Source
from vllm_raster_model.checkpoints.tasks import Task, read_task
from vllm_raster_model.errors import ContractError

_HEADS = {"classes": "SegmentationHead", "values": "RegressionHead"}
_KINDS = {"terratorch": "TerraTorch folder for vLLM", "run": "TerraTorch training run"}
_COORDINATES = {"time": "temporal_coords", "location": "location_coords"}


def terratorch_facts(source: Source) -> Facts:
    """What a fine-tune's configuration says.

    Raises:
        ContractError: It describes nothing that can be served.
    """
    whole = Settings.of(
        "pretrained_cfg" if source.kind == "terratorch" else "the configuration",
        source.config.get("pretrained_cfg") if source.kind == "terratorch" else source.config,
    )
    task_path, arguments, model_arguments = _model(whole)
    task = read_task(task_path, arguments)
    model = read_model(task.factory, model_arguments)
    fed = read_data(whole.section("data"), model.backbone.bands, model.states_bands)
    shape = _input_shape(whole, model)
    channels = _channels(task, model)
    names = task.class_names
    if names is not None and len(names) != channels:
        raise ContractError(f"class_names has {len(names)} names for {channels} classes")
    facts = Facts(
        source=_KINDS[source.kind],
        network=_network(task, model),
        band_count=model.backbone.bands.count,
        frames=model.backbone.frames,
        kind=task.kind,
        channels=channels,
        patch=model.backbone.patch_size,
        bands=fed.bands or model.backbone.bands.names,
        coordinates=_told_coordinates(model, fed, whole),
        encoder=model.backbone.name,
        encodings=model.backbone.coordinates,
        mean=fed.mean,
        std=fed.std,
        scale=fed.scale,
        nodata_fill=fed.nodata_fill,
        first_day=fed.first_day,
        tile=_tile(shape, fed, task, whole),
        overlap=task.overlap,
        channel_names=names
        or ((fed.target,) if fed.target and task.kind == "values" and channels == 1 else None),
        licence=source.licence,
        notes=list(fed.notes),
    )
    _note_bands(facts, model)
    return facts


def _model(whole: Settings) -> tuple[str | None, Settings, Settings]:
    """The task, its arguments and those of the model; the oldest layout has them side by side."""
    if "model" in whole:
        model = whole.section("model")
        arguments = model.section("init_args")
        return model.text("class_path"), arguments, arguments.section("model_args")
    arguments = whole.section("task_args")
    task = arguments.text("task")
    others = {key: value for key, value in arguments.values.items() if key != "task"}
    return task, Settings(arguments.where, others), whole.section("model_args")


def _network(task: Task, model: FineTune) -> dict[str, Any]:
    backbone = model.backbone
    return {
        "model_type": "prithvi_dense",
        "embed_dim": backbone.embed_dim,
        "depth": backbone.depth,
        "num_heads": backbone.num_heads,
        "patch_size": backbone.patch_size,
        "tubelet_size": backbone.tubelet_size,
        "image_size": backbone.image_size,
        "mlp_ratio": backbone.mlp_ratio,
        "out_indices": backbone.out_indices,
        "necks": model.necks,
        "decoder": model.decoder,
        "head": {**model.head, "name": _HEADS[task.kind]},
        "rescale": model.rescale,
        "padding": backbone.padding,
    }


def _channels(task: Task, model: FineTune) -> int:
    if task.kind == "values":
        return model.num_outputs or model.num_classes or 1
    if model.num_classes is None:
        raise ContractError("model_args must say num_classes for a segmentation")
    return model.num_classes


def _input_shape(whole: Settings, model: FineTune) -> list[int] | None:
    """Height and width of the windows that the configuration tells vLLM of."""
    pixels = _inputs(whole).section("pixel_values")
    shape = pixels.items("shape")
    if shape is None:
        return None
    if not all(isinstance(one, int) and 0 < one <= MOST for one in shape):
        raise ContractError(f"{pixels.where}.shape must be whole numbers, got {shown(shape)}")
    bands, frames = model.backbone.bands.count, model.backbone.frames
    expected = [[bands, frames]] + ([[bands]] if frames == 1 else [])
    # Some write the batch as well, of one window.
    expected += [[1, *one] for one in expected]
    if len(shape) < 3 or shape[:-2] not in expected:
        raise ContractError(
            f"{pixels.where}.shape must be [{bands}, {frames}, height, width] for this model, "
            f"got {shape}"
        )
    return shape[-2:]


def _inputs(whole: Settings) -> Settings:
    return whole.section("input").section("data")


def _tile(shape: list[int] | None, fed: Fed, task: Task, whole: Settings) -> int | None:
    if shape is not None:
        return max(shape)
    if size := task.crop or fed.crop:
        return size
    model = _model(whole)[2]
    sizes = [model.get(f"backbone_{one}") for one in ("img_size", "pretrain_img_size")]
    for size in sizes:
        # Read and checked with the backbone.
        if size is not None:
            return max(size) if isinstance(size, (list, tuple)) else size
    return None


def _told_coordinates(model: FineTune, fed: Fed, whole: Settings) -> tuple[str, ...]:
    """What the network is to be told: only what it was told before.

    An encoding that was never fed while the network was fine-tuned would move its answers. The
    configuration for vLLM lists the inputs; a run's data module says whether it gives any.
    """
    inputs = _inputs(whole)
    told = True
    if inputs.values:
        told = any(one in inputs for one in _COORDINATES.values())
    elif fed.told_coordinates is not None:
        told = fed.told_coordinates
    return model.backbone.coordinates if told else ()


def _note_bands(facts: Facts, model: FineTune) -> None:
    named = model.backbone.bands.names
    if model.states_bands and named and facts.bands and facts.bands != named:
        facts.notes.append(
            f"The data module's bands are {', '.join(facts.bands)}; the model's own arguments "
            f"call them {', '.join(named)}: the data module's are used"
        )
