"""What the tests of the model package share; vLLM is imported only where a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

from vllm_raster_model.networks import NETWORKS

from .checkpoints import ENLARGE, Enlarge, EnlargeConfig, make_config
from .instructed import make_instructed

if TYPE_CHECKING:
    from .serving import InstructedServing, Serving


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # These networks are too small to be shared among cores.
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _plain_to_see() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, EnlargeConfig.model_type, f"{Enlarge.__module__}:Enlarge")
        yield


@pytest.fixture(scope="session")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The groups of processes that vLLM's parallel layers ask for, of this one alone."""
    from .serving import alone

    with alone(tmp_path_factory.mktemp("store") / "store"):
        yield


@pytest.fixture(scope="session")
def prithvi(one_process: None, tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """A tiny Prithvi with UPerNet."""
    from .serving import Serving

    return Serving(tmp_path_factory.mktemp("prithvi"), make_config())


@pytest.fixture(scope="session")
def enlarge(one_process: None, tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """A network whose maps are plain to see, twice as large as the windows."""
    from .serving import Serving

    config = make_config(ENLARGE, output={"upscale": 2})
    return Serving(tmp_path_factory.mktemp("enlarge"), config)


@pytest.fixture(scope="session")
def llama(one_process: None, tmp_path_factory: pytest.TempPathFactory) -> InstructedServing:
    """A tiny Prithvi and a tiny Llama."""
    from .serving import InstructedServing

    return InstructedServing(tmp_path_factory.mktemp("llama"), make_instructed("llama"))


@pytest.fixture(scope="session")
def qwen3(one_process: None, tmp_path_factory: pytest.TempPathFactory) -> InstructedServing:
    """A tiny Prithvi and a tiny Qwen3."""
    from .serving import InstructedServing

    return InstructedServing(tmp_path_factory.mktemp("qwen3"), make_instructed("qwen3"))


@pytest.fixture(params=["llama", "qwen3"])
def serving(request: pytest.FixtureRequest) -> InstructedServing:
    """Each of the checkpoints with a language model inside."""
    found: InstructedServing = request.getfixturevalue(request.param)
    return found
