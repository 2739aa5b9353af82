"""What TerraTorch's tasks say of a network's answer."""

from dataclasses import dataclass

from vllm_raster_model.checkpoints.settings import Settings, shown
from vllm_raster_model.errors import ContractError

_SEGMENTATION, _REGRESSION = "SemanticSegmentationTask", "PixelwiseRegressionTask"
_TASKS = (_SEGMENTATION, _REGRESSION)
_READ = {"model_args", "model_factory", "class_names", "tiled_inference_parameters"}
_UNUSED = {
    # What only training and its reports look at.
    "loss",
    "aux_heads",
    "aux_loss",
    "class_weights",
    "ignore_index",
    "lr",
    "lr_overrides",
    "optimizer",
    "optimizer_hparams",
    "optimizer_params",
    "scheduler",
    "scheduler_hparams",
    "scheduler_params",
    "freeze_backbone",
    "freeze_decoder",
    "freeze_head",
    "plot_on_val",
    "test_dataloaders_names",
    "tiled_inference_on_testing",
    "tiled_inference_on_validation",
    "path_to_record_metrics",
    "var_weights",
    "rgb_bands",
    # How TerraTorch writes its answers; here a request says what it wants.
    "output_on_inference",
    "output_most_probable",
}
_TILING = {"h_crop", "w_crop", "crop", "h_stride", "w_stride", "stride"}
_TILING_UNUSED = {
    "delta",
    "average_patches",
    "blend_overlaps",
    "batch_size",
    "verbose",
    "padding",
}


@dataclass(frozen=True)
class Task:
    """What is asked of the network.

    Attributes:
        kind: `classes` or `values`.
        factory: What builds the network.
        class_names: Where the configuration gives them.
        crop: Side of the windows that TerraTorch cuts large scenes into, where it says so.
        overlap: Pixels that neighbouring ones share, where it says so.
    """

    kind: str
    factory: str
    class_names: tuple[str, ...] | None
    crop: int | None
    overlap: int | None


def read_task(class_path: str | None, arguments: Settings) -> Task:
    """Reads a task's class and arguments.

    Raises:
        ContractError: The task gives no map, or an argument is not known.
    """
    name = (class_path or "").rpartition(".")[2]
    if name not in _TASKS:
        raise ContractError(
            f"The task {shown(class_path)} is not supported; there are {', '.join(_TASKS)}"
        )
    arguments.refuse_unknown(_READ | _UNUSED, f"not known of a {name}")
    crop, overlap = _tiling(arguments.section("tiled_inference_parameters"))
    return Task(
        kind="classes" if name == _SEGMENTATION else "values",
        factory=arguments.text("model_factory") or "EncoderDecoderFactory",
        class_names=_class_names(arguments) if name == _SEGMENTATION else None,
        crop=crop,
        overlap=overlap,
    )


def _class_names(arguments: Settings) -> tuple[str, ...] | None:
    listed = arguments.items("class_names")
    if listed is None:
        return None
    if not all(isinstance(one, (str, int)) for one in listed):
        raise ContractError(f"{arguments.where}.class_names must be texts, got {shown(listed)}")
    return tuple(str(one) for one in listed)


def _tiling(tiling: Settings) -> tuple[int | None, int | None]:
    tiling.refuse_unknown(_TILING | _TILING_UNUSED, "not known of tiled inference")
    crop = max(_sides(tiling, "crop"), default=None)
    strides = _sides(tiling, "stride")
    if crop is None or not strides:
        return crop, None
    return crop, max(crop - min(strides), 0)


def _sides(tiling: Settings, name: str) -> list[int]:
    each = [tiling.whole(f"{side}_{name}") or tiling.whole(name) for side in "hw"]
    return [one for one in each if one is not None]
