"""A map that nobody waits for any more is not put together."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from vllm_raster_io.access import Access
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import LimitError
from vllm_raster_io.jobs import Job
from vllm_raster_io.memory import give_memory_back
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import Array, make_contract

CONTRACT = make_contract()


class GivesUp(Sequence[Array]):
    """Maps of windows; when one of them is asked for, the client hangs up."""

    def __init__(self, job: Job, at: int) -> None:
        network = PixelNetwork(CONTRACT)
        self._maps = [network(item) for item in job.items()]
        self._job, self._at = job, at
        self.asked = 0

    def __len__(self) -> int:
        return len(self._maps)

    def __getitem__(self, place: Any) -> Any:
        parts = range(len(self))[place]
        self.asked += 1
        if self._at in (parts if isinstance(place, slice) else [parts]):
            self._job.give_up()
        return self._maps[place]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))


def open_job(access: Access | None = None, **fields: Any) -> Job:
    content = base64.b64encode(make_raster(height=200, width=200)).decode()
    return Job(RasterRequest(data=content, **fields), CONTRACT, access, Deadline(60, "It"))


@pytest.mark.parametrize("at", [0, 5])
def test_of_the_other_windows_none_is_looked_at(at: int) -> None:
    with open_job() as job:
        maps = GivesUp(job, at)
        with pytest.raises(LimitError, match="nobody waits"):
            job.answer(maps, None)
        assert maps.asked <= at + 2


def test_no_file_is_written(tmp_path: Path) -> None:
    access = Access(Settings.load({"VLLM_RASTER_WRITE_ROOTS": str(tmp_path)}))
    with open_job(access, out_data_format="path", out_path="map.tif") as job:
        maps = GivesUp(job, len(job.items()) - 1)
        with pytest.raises(LimitError, match="nobody waits"):
            job.answer(maps, None)
    assert not list(tmp_path.iterdir())


def test_without_hurry_nothing_is_given_up() -> None:
    content = base64.b64encode(make_raster()).decode()
    with Job(RasterRequest(data=content), CONTRACT) as job:
        assert job.answer(GivesUp(job, 0), None).width == 48


def test_memory_goes_back_to_the_machine() -> None:
    pieces = [bytes(100_000) for _ in range(2000)]
    few = pieces[::50]
    full = resident()
    del pieces
    give_memory_back()
    assert resident() < full - 100_000_000
    assert len(few) == 40


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
