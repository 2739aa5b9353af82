"""Several dates: a file each or all in one, and what is refused of them."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rasterio import Affine
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile

from vllm_raster_io import rasters, uploads
from vllm_raster_io.answers import RasterAnswer
from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import LimitError, RasterError, RasterIOError, RequestError
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import Array, make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

BANDS = ("RED", "NIR")
DAYS = ["2023-03-01", "2023-06-15", "2023-09-30"]
CROPS = make_contract(bands=BANDS, frames=3, channels=5, coordinates=("time",))
SIZES = [(1, 1), (5, 70), (64, 64), (100, 130)]
POINTS = [GroundControlPoint(r, c, 10 + c, 50 - r) for r in (0, 32) for c in (0, 48)]


class TestSeveralFiles:
    @pytest.mark.parametrize("size", SIZES)
    def test_the_map_is_that_of_all_dates(self, size: tuple[int, int]) -> None:
        pixels = noise(*size)
        answer = mapped(files(pixels), CROPS)
        # What the network sees is (bands, frames, height, width).
        expected = PixelNetwork(CROPS).ids(pixels.swapaxes(0, 1))
        np.testing.assert_array_equal(pixels_of(answer)[0], expected)
        assert answer.effective.frames == 3
        assert answer.effective.indices == [0, 1] * 3

    def test_the_order_of_the_files_is_that_of_the_frames(self) -> None:
        pixels = noise(20, 30)
        whole, turned = (mapped(files(one), CROPS) for one in (pixels, pixels[::-1]))
        assert (pixels_of(whole) != pixels_of(turned)).any()
        expected = PixelNetwork(CROPS).ids(pixels[::-1].swapaxes(0, 1))
        np.testing.assert_array_equal(pixels_of(turned)[0], expected)

    def test_each_files_bands_are_found_by_its_own_names(self) -> None:
        pixels = noise(20, 30)
        contents = files(pixels)
        contents[1] = make_raster(
            values=np.stack([pixels[1, 1], np.zeros((20, 30), int), pixels[1, 0]]),
            descriptions=["nir", None, "red"],
        )
        answer = mapped(contents, CROPS)
        assert answer.effective.indices == [0, 1, 2, 0, 0, 1]
        assert answer.effective.bands_by == "order"
        np.testing.assert_array_equal(pixels_of(answer), pixels_of(mapped(files(pixels), CROPS)))

    def test_indices_hold_for_each_file(self) -> None:
        pixels = noise(20, 30)
        contents = [make_raster(values=np.concatenate([one[::-1], one])) for one in pixels]
        answer = mapped(contents, CROPS, indices=[1, 3])
        assert answer.effective.indices == [1, 3] * 3
        expected = pixels_of(mapped(files(pixels[:, [0, 1]]), CROPS))
        np.testing.assert_array_equal(pixels_of(answer), expected)

    def test_the_place_is_theirs(self) -> None:
        place = Affine(30, 1, 700_000, 2, -30, 4_000_000)
        answer = mapped(files(noise(20, 30), crs="EPSG:32631", transform=place), CROPS)
        with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
            assert dataset.transform == place
            assert dataset.crs.to_epsg() == 32631

    def test_tags_are_kept_on_which_all_agree(self) -> None:
        def kept(*days: str) -> Any:
            contents = [
                make_raster(bands=2, tags={"AREA_OR_POINT": "Point", "TIFFTAG_DATETIME": day})
                for day in days
            ]
            answer = mapped(contents, CROPS)
            with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
                assert dataset.tags()["AREA_OR_POINT"] == "Point"
                return dataset.tags().get("TIFFTAG_DATETIME")

        same = "2023:06:15 10:00:00"
        assert kept(same, same, same) == same
        assert kept(same, "2023:06:16 10:00:00", same) is None

    def test_control_points(self) -> None:
        contents = [make_raster(bands=2, crs="EPSG:4326", gcps=POINTS, seed=i) for i in range(3)]
        assert mapped(contents, CROPS).crs == "EPSG:4326"

    def test_a_list_of_one_is_that_file(self) -> None:
        content, contract = make_raster(), make_contract()
        assert mapped([content], contract) == mapped(content, contract)


class TestOneFile:
    @pytest.mark.parametrize("size", SIZES)
    def test_all_bands_of_a_date_come_before_the_next(self, size: tuple[int, int]) -> None:
        pixels = noise(*size)
        stacked = make_raster(values=np.concatenate(pixels))
        for source in (stacked, [stacked]):
            answer = mapped(source, CROPS)
            assert answer.effective.indices == [0, 1, 2, 3, 4, 5]
            assert answer.effective.bands_by == "order"
            expected = PixelNetwork(CROPS).ids(pixels.swapaxes(0, 1))
            np.testing.assert_array_equal(pixels_of(answer)[0], expected)

    @pytest.mark.parametrize(
        ("names", "indices"),
        [
            (["RED", "NIR"] * 3, [0, 1, 2, 3, 4, 5]),
            (["NIR", "RED"] * 3, [1, 0, 3, 2, 5, 4]),
            (["red"] * 3 + ["nir"] * 3, [0, 3, 1, 4, 2, 5]),  # all dates of a band first
            (["RED", "NIR", "QA"] * 3, [0, 1, 3, 4, 6, 7]),
        ],
    )
    def test_names_tell_the_order(self, names: list[str], indices: list[int]) -> None:
        pixels = np.zeros((len(names), 20, 30), np.uint16)
        wanted = noise(20, 30)
        pixels[indices] = np.concatenate(wanted)
        answer = mapped(make_raster(values=pixels, descriptions=names), CROPS)
        assert answer.effective.indices == indices
        assert answer.effective.bands_by == "names"
        np.testing.assert_array_equal(pixels_of(answer), pixels_of(mapped(files(wanted), CROPS)))

    @pytest.mark.parametrize(
        ("count", "asked", "used"),
        [
            (6, [1, 0], [1, 0, 3, 2, 5, 4]),
            (9, [2, 1], [2, 1, 5, 4, 8, 7]),
            (6, [0, 3, 1, 4, 2, 5], [0, 3, 1, 4, 2, 5]),
            (7, [6, 0, 6, 1, 6, 2], [6, 0, 6, 1, 6, 2]),
        ],
    )
    def test_indices_of_each_date_or_of_the_file(
        self, count: int, asked: list[int], used: list[int]
    ) -> None:
        pixels = np.random.default_rng(0).integers(1, 5_000, (count, 20, 30))
        answer = mapped(make_raster(values=pixels), CROPS, indices=asked)
        assert answer.effective.indices == used
        seen = pixels[used].reshape(3, 2, 20, 30).swapaxes(0, 1)
        np.testing.assert_array_equal(pixels_of(answer)[0], PixelNetwork(CROPS).ids(seen))

    @pytest.mark.parametrize(
        ("content", "fields", "told"),
        [
            (make_raster(bands=2), {}, "takes 3 dates of 2 bands (RED, NIR), but the file has 2"),
            (make_raster(bands=5), {}, "but the file has 5"),
            (make_raster(bands=12), {}, "but the file has 12"),
            (make_raster(bands=6, descriptions=["NIR", "RED"] * 2), {}, "NIR, RED, NIR, RED, unna"),
            (make_raster(bands=6), {"indices": [0]}, "2 bands (RED, NIR), or all 6 of the 3 dates"),
            (make_raster(bands=6), {"indices": [0, 2]}, "2 bands a date, got [2]"),
            (make_raster(bands=6), {"indices": [0, 1, 2, 3, 4, 6]}, "has 6 bands, got [6]"),
            (make_raster(bands=7), {"indices": [0, 1]}, "7 bands, which are not the same number"),
        ],
    )
    def test_refused(self, content: bytes, fields: dict[str, Any], told: str) -> None:
        assert told in refusal(content, CROPS, **fields)


class TestItems:
    @pytest.mark.parametrize("stacked", [False, True])
    def test_shapes(self, stacked: bool) -> None:
        pixels = noise(64, 100)
        content = make_raster(values=np.concatenate(pixels)) if stacked else files(pixels)
        job = Job(request(content, dates=DAYS), CROPS)
        items = job.items()
        assert len(items) == 2
        for item, columns in zip(items, (slice(0, 64), slice(36, 100)), strict=True):
            assert item["pixel_values"].shape == (2, 3, 64, 64)
            assert item["pixel_values"].dtype == np.uint16
            seen = np.asarray(item["pixel_values"])
            assert seen.flags.c_contiguous
            np.testing.assert_array_equal(seen, pixels.swapaxes(0, 1)[..., columns])
            assert item["valid"].shape == (64, 64)
            assert item["temporal_coords"].tolist() == [[2023, 60], [2023, 166], [2023, 273]]
        job.close()

    @pytest.mark.parametrize("stacked", [False, True])
    def test_a_pixel_counts_where_it_is_valid_on_all_dates(self, stacked: bool) -> None:
        pixels = noise(20, 30)
        pixels[0, 1, 2, 3] = pixels[2, 0, 4, 5] = 9_999
        if stacked:
            content: Any = make_raster(values=np.concatenate(pixels), nodata=9_999)
        else:
            content = files(pixels, nodata=9_999)
        answer = mapped(content, CROPS)
        invalid = pixels_of(answer)[0] == 255
        assert np.argwhere(invalid).tolist() == [[2, 3], [4, 5]]
        assert answer.invalid_pixels == 2

    def test_each_file_has_its_own_nodata(self) -> None:
        pixels = noise(20, 30)
        pixels[:, 0, 0, 0] = 7
        contents = [make_raster(values=one, nodata=7 if i == 1 else None)
                    for i, one in enumerate(pixels)]  # fmt: skip
        assert mapped(contents, CROPS).invalid_pixels == 1
        assert mapped(files(pixels), CROPS).invalid_pixels == 0


class TestDates:
    def test_a_tag_a_file(self) -> None:
        tags = [{"TIFFTAG_DATETIME": "2023:03:01 10:00:00"}, {"datetime": "2023-06-15"}, {}]
        contents = [make_raster(bands=2, seed=i, tags=one) for i, one in enumerate(tags)]
        job = Job(request(contents), CROPS)
        (item,) = job.items()
        job.close()
        coords = item["temporal_coords"]
        np.testing.assert_array_equal(coords, [[2023, 60], [2023, 166], [np.nan, np.nan]])
        effective = mapped(contents, CROPS).effective
        assert effective.dates == ["2023-03-01", "2023-06-15", None]
        assert effective.dates_by == ["TIFFTAG_DATETIME", "datetime", None]
        assert effective.coordinates == ["time"]
        (note,) = effective.notes
        assert "date (frame 3) is unknown" in note

    def test_a_tag_a_band_of_one_file(self) -> None:
        told = {1: {"datetime": DAYS[0]}, 4: {"datetime": DAYS[1]}, 5: {"datetime": "soon"}}
        told[6] = {"date": DAYS[2]}
        content = make_raster(bands=6, band_tags=told)
        effective = mapped(content, CROPS).effective
        assert effective.dates == DAYS
        assert effective.dates_by == ["datetime", "datetime", "date"]

    def test_one_tag_of_a_file_of_several_dates_is_none_of_theirs(self) -> None:
        tags = {"TIFFTAG_DATETIME": "2023:03:01 10:00:00", "datetime": "2023-03-01"}
        effective = mapped(make_raster(bands=6, tags=tags), CROPS).effective
        assert effective.dates == [None] * 3
        assert effective.coordinates == []
        assert "(frame 1, 2, 3)" in effective.notes[0]

    def test_the_request_wins(self) -> None:
        contents = files(noise(5, 5), tags={"datetime": "2020-01-01"})
        effective = mapped(contents, CROPS, dates=DAYS).effective
        assert effective.dates == DAYS
        assert effective.dates_by == ["request"] * 3
        assert effective.notes == []

    @pytest.mark.parametrize("by", ["request", "tags"])
    def test_not_in_order_of_time(self, by: str) -> None:
        days = DAYS[::-1]
        if by == "request":
            answer = mapped(files(noise(5, 5)), CROPS, dates=days)
        else:
            tags = [{"datetime": day} for day in days]
            contents = [make_raster(bands=2, seed=i, tags=one) for i, one in enumerate(tags)]
            answer = mapped(contents, CROPS)
        assert answer.effective.dates == days
        (note,) = answer.effective.notes
        assert "not in order of time" in note

    @pytest.mark.parametrize("dates", [DAYS[0], DAYS[:1], DAYS[:2], [*DAYS, DAYS[0]]])
    def test_another_number(self, dates: str | list[str]) -> None:
        message = refusal(files(noise(5, 5)), CROPS, RequestError, dates=dates)
        assert "`dates` must be 3, one for each of the checkpoint's frames" in message


class TestRefused:
    @pytest.mark.parametrize("count", [2, 4])
    def test_another_number_of_files(self, count: int) -> None:
        contents = [make_raster(bands=2)] * count
        message = refusal(contents, CROPS, RequestError)
        assert f"`data` holds {count} files, but this checkpoint takes 3 dates" in message

    def test_several_files_for_one_date(self) -> None:
        message = refusal([make_raster()] * 2, make_contract(), RequestError)
        assert "`data` holds 2 files, but this checkpoint takes one" in message

    @pytest.mark.parametrize(
        ("first", "other", "told"),
        [
            ({}, {"height": 31}, "another size (31×48, not 32×48)"),
            ({}, {"crs": "EPSG:32633"}, "reference system (EPSG:32633, not EPSG:32632)"),
            ({}, {"crs": None}, "another reference system (none, not EPSG:32632)"),
            ({}, {"dtype": "int16"}, "another type (int16, not uint16)"),
            ({}, {"transform": Affine(10, 0, 600_010, 0, -10, 53e5)}, "another transform ([10."),
            ({}, {"transform": Affine(10, 0, 600_000, 0, -10.01, 53e5)}, "another transform"),
            ({}, {"transform": Affine(10, 10, 6e5, 10, 10, 53e5)}, "another transform"),
            ({}, {"transform": Affine.identity()}, "another transform"),
            ({}, {"gcps": POINTS}, "ground control points"),
            ({"gcps": POINTS}, {"gcps": POINTS[:3]}, "another ground control points"),
            ({}, {"height": 20, "dtype": "int16"}, "another size (20×48, not 32×48), another type"),
        ],
    )  # fmt: skip
    def test_files_that_differ(
        self, first: dict[str, Any], other: dict[str, Any], told: str
    ) -> None:
        contents = [make_raster(bands=2, **one) for one in (first, first, other)]
        message = refusal(contents, CROPS)
        assert message.startswith("The files of the dates must be alike, but number 3 has ")
        assert told in message

    def test_what_writers_round_is_no_difference(self) -> None:
        places = [Affine(10 + i * 1e-6, 0, 600_000 + i * 1e-3, 0, -10, 5e6) for i in range(3)]
        mapped([make_raster(bands=2, transform=place) for place in places], CROPS)

    @pytest.mark.parametrize(
        ("bad", "kind", "told"),
        [
            (b"text", RasterError, "File 2 of 3: The data must be a GeoTIFF, PNG, JPEG, "),
            (make_raster()[:40], RasterError, "File 2 of 3: "),
            (make_raster(bands=3), RasterError, "File 2 of 3: The checkpoint takes 2 bands"),
            (b"", RequestError, "`data` is empty"),
        ],
    )
    def test_the_file_is_named(self, bad: bytes, kind: type[RasterIOError], told: str) -> None:
        good = make_raster(bands=2)
        assert refusal([good, bad, good], CROPS, kind).startswith(told)

    def test_a_damaged_file_is_named_when_it_is_read(self) -> None:
        good = make_raster(bands=2, height=200, width=200)
        job = Job(request([good, good, good[:-30_000]]), CROPS)
        *_, last = job.items()
        with pytest.raises(RasterError, match=r"File 3 of 3: Rows .* damaged"):
            np.asarray(last["pixel_values"])
        job.close()

    def test_nothing_is_left_behind(self) -> None:
        contents = [make_raster(bands=2), make_raster(bands=3), make_raster(bands=2)]
        sent = [Upload.of(one) for one in contents]
        with pytest.raises(RasterError):
            Job(RasterRequest(data=sent), CROPS)
        assert not any(one.memory.exists() for one in sent)
        sent = [Upload.of(one) for one in files(noise(5, 5))]
        job = Job(RasterRequest(data=sent), CROPS)
        assert all(one.memory.exists() for one in sent)
        job.close()
        assert not any(one.memory.exists() for one in sent)


class TestLimits:
    """They hold for the sum."""

    @pytest.mark.parametrize(
        "limits", [Limits(pixels=75), Limits(bands=6), Limits(block_bytes=300)]
    )
    def test_of_what_is_opened(self, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rasters, "LIMITS", limits)
        contents = files(noise(5, 5), interleave="pixel")
        mapped(contents, CROPS)
        more = files(noise(5, 6), interleave="pixel")
        if limits.bands == 6:
            more = [*contents[:2], make_raster(values=noise(5, 5)[0].repeat(2, 0))]
        message = refusal(more, CROPS, LimitError, indices=[0, 1])
        assert message.startswith("File 3 of 3: The request has ")

    def test_of_metadata(self) -> None:
        contents = files(noise(5, 5), tags={"long": "x" * 400_000})
        assert "metadata bytes" in refusal(contents, CROPS, LimitError)

    def test_of_what_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        contents = files(noise(5, 5))
        size = sum(len(base64.b64encode(one)) for one in contents)
        monkeypatch.setattr(uploads, "LIMITS", Limits(bytes=size))
        mapped(contents, CROPS)
        monkeypatch.setattr(uploads, "LIMITS", Limits(bytes=size - 1))
        assert "bytes, and at most" in refusal(contents, CROPS, LimitError)


def noise(height: int, width: int) -> Array:
    """Counts (dates, bands, height, width)."""
    chance = np.random.default_rng([height, width])
    return chance.integers(1, 5_000, (3, len(BANDS), height, width)).astype(np.uint16)


def files(pixels: Array, **options: Any) -> list[bytes]:
    return [make_raster(values=one, **options) for one in pixels]


def request(source: bytes | Sequence[bytes], **fields: Any) -> RasterRequest:
    whole = isinstance(source, bytes)
    data = encoded(source) if whole else [encoded(one) for one in source]
    return RasterRequest.parse({"data": data, **fields})


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def mapped(
    source: bytes | Sequence[bytes], contract: RasterContract, **fields: Any
) -> RasterAnswer:
    job = Job(request(source, **fields), contract)
    network = PixelNetwork(contract)
    answer = job.answer([network(item) for item in job.items()], None)
    job.close()
    return answer


def refusal(
    source: bytes | Sequence[bytes],
    contract: RasterContract,
    kind: type[RasterIOError] = RasterError,
    **fields: Any,
) -> str:
    with pytest.raises(RasterIOError) as caught:
        Job(request(source, **fields), contract)
    assert type(caught.value) is kind
    return str(caught.value)


def pixels_of(answer: RasterAnswer) -> Array:
    with MemoryFile(base64.b64decode(answer.data)) as memory, memory.open() as dataset:
        return dataset.read()
