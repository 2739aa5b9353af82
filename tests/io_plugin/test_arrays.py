"""Files of numpy's own (.npy)."""

import io
import os
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_raster_io.errors import LimitError, RasterError
from vllm_raster_io.files import DiskFile
from vllm_raster_io.rasters import Scene
from vllm_raster_io.tiling import Window

from .requested import answered, refused, seen
from .scenes import Array, make_contract, open_scene, read_all
from .test_rasters_refusals import quick_and_small

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

IMAGE = make_contract("image")
DATES = make_contract("image", bands=("RED", "NIR"), frames=3)
TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]


def npy(array: Array, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version, allow_pickle=True)
    return buffer.getvalue()


def with_header(header: str, rest: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + rest


def header(descr: Any = "<u2", shape: Any = (4, 5, 6), fortran: Any = False) -> str:
    return repr({"descr": descr, "fortran_order": fortran, "shape": shape})


def numbers(*shape: int, dtype: str = "u2") -> Array:
    chance = np.random.default_rng(list(shape))
    return chance.integers(0, 120, shape).astype(dtype)


class TestValues:
    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("kind", TYPES)
    def test_of_every_type(self, kind: str, order: str, version: tuple[int, int]) -> None:
        array = numbers(4, 7, 9, dtype=kind).astype(order + kind)
        pixels, valid = read_all(npy(array, version))
        assert pixels.dtype == np.dtype(kind)
        assert pixels.dtype.isnative
        np.testing.assert_array_equal(pixels, array)
        assert valid.all()

    def test_ends_of_integers(self) -> None:
        for kind in ("i8", "u8", "i1"):
            limits = np.iinfo(kind)
            array = np.array([[limits.min, limits.max, 0]], kind)
            np.testing.assert_array_equal(read_all(npy(array))[0], array[np.newaxis])

    def test_truth_values(self) -> None:
        array = np.array([[True, False, True]])
        pixels, _ = read_all(npy(array))
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, [[[1, 0, 1]]])
        odd = npy(array)[:-3] + bytes([7, 0, 1])
        np.testing.assert_array_equal(read_all(odd)[0], [[[1, 0, 1]]])

    @pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
    def test_what_is_not_finite_is_invalid(self, kind: str) -> None:
        array = np.ones((2, 1, 4), kind)
        array[0, 0, 1], array[1, 0, 2] = np.nan, np.inf
        np.testing.assert_array_equal(read_all(npy(array))[1], [[1, 0, 0, 1]])

    @pytest.mark.parametrize("fortran", [False, True])
    @pytest.mark.parametrize("shape", [(30, 50), (1, 30, 50), (4, 30, 50), (2, 3, 30, 50)])
    @pytest.mark.parametrize("on_disk", [False, True])
    def test_windows(
        self, shape: tuple[int, ...], fortran: bool, on_disk: bool, tmp_path: Any
    ) -> None:
        array = numbers(*shape)
        content = npy(np.asfortranarray(array) if fortran else array)
        bands = (
            array.reshape(-1, 30, 50)
            if len(shape) < 4
            else array.swapaxes(0, 1).reshape(-1, 30, 50)
        )
        if on_disk:
            (tmp_path / "array.npy").write_bytes(content)
            scene = Scene(DiskFile(os.open(tmp_path / "array.npy", os.O_RDONLY)))
        else:
            scene = open_scene(content)
        with scene:
            assert (scene.count, scene.height, scene.width) == bands.shape
            for window in (Window(0, 0, 30, 50), Window(29, 49, 1, 1), Window(3, 7, 11, 13)):
                indices = [scene.count - 1, 0]
                pixels, _ = scene.read(window, indices)
                np.testing.assert_array_equal(pixels, bands[indices][:, *window.slices])
                assert pixels.flags.c_contiguous

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_any_window_of_any_array(self, data: st.DataObject) -> None:
        shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
        kind = data.draw(st.sampled_from(TYPES))
        array = numbers(*shape, dtype=kind).astype(data.draw(st.sampled_from("<>")) + kind)
        if data.draw(st.booleans()):
            array = np.asfortranarray(array)
        height, width = shape[-2:]
        row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        window = Window(row, column, data.draw(st.integers(1, height - row)),
                        data.draw(st.integers(1, width - column)))  # fmt: skip
        bands = array.swapaxes(0, 1) if array.ndim == 4 else array
        bands = bands.reshape(-1, height, width)
        with open_scene(npy(array)) as scene:
            pixels, _ = scene.read(window, range(len(bands)))
        np.testing.assert_array_equal(pixels, bands[:, *window.slices])


class TestAsked:
    def test_bands_in_order(self) -> None:
        array = numbers(4, 20, 30)
        np.testing.assert_array_equal(seen(npy(array), IMAGE), array)
        answer = answered(npy(array), IMAGE)
        assert answer.crs is None
        assert (answer.height, answer.width) == (20, 30)
        assert answer.effective.bands_by == "order"
        assert answer.invalid_pixels == 0

    def test_indices(self) -> None:
        array = numbers(6, 20, 30)
        found = seen(npy(array), IMAGE, indices=[5, 0, 2, 2])
        np.testing.assert_array_equal(found, array[[5, 0, 2, 2]])

    def test_dates_as_an_axis(self) -> None:
        array = numbers(2, 3, 20, 30)
        np.testing.assert_array_equal(seen(npy(array), DATES), array)

    def test_dates_one_after_the_other(self) -> None:
        array = numbers(2, 3, 20, 30)
        flat = array.swapaxes(0, 1).reshape(6, 20, 30)
        np.testing.assert_array_equal(seen(npy(flat), DATES), array)

    def test_a_file_a_date(self) -> None:
        array = numbers(2, 3, 20, 30)
        files = [npy(array[:, i]) for i in range(3)]
        np.testing.assert_array_equal(seen(files, DATES), array)

    def test_other_dates(self) -> None:
        message = refused(npy(numbers(3, 2, 20, 30)), DATES)
        assert (
            "The array has 2 dates, (bands, dates, height, width), but the checkpoint takes 3"
            in message
        )

    def test_a_place_is_none(self) -> None:
        contract = make_contract("image", coordinates=("location", "time"))
        effective = answered(npy(numbers(4, 20, 30)), contract).effective
        assert len(effective.notes) == 2
        effective = answered(npy(numbers(4, 20, 30)), contract, location=[47.5, 8.5]).effective
        assert effective.location_by == "request"

    @pytest.mark.parametrize("shape", [(20, 30, 4), (20, 30)])
    def test_other_bands(self, shape: tuple[int, ...]) -> None:
        assert "The checkpoint takes 4 bands" in refused(npy(numbers(*shape)), IMAGE)

    def test_one_band_is_no_gray_picture(self) -> None:
        contract = make_contract(bands=("RED", "GREEN", "BLUE"))
        assert "takes 3 bands" in refused(npy(numbers(20, 30, dtype="u1")), contract)


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/vllm_raster_io_was_here",)


class TestRefused:
    @pytest.mark.parametrize(
        "array",
        [
            np.array([[Evil()]], dtype=object),
            np.zeros((2, 2), [("a", "u2"), ("b", "f4")]),
            np.zeros((2, 2), "U3"),
            np.zeros((2, 2), "S3"),
            np.zeros((2, 2), "M8[s]"),
            np.zeros((2, 2), "c8"),
            np.zeros((2, 2), "V4"),
            np.zeros((2, 2), np.longdouble),
        ],
    )
    def test_other_types(self, array: Array) -> None:
        message = refused(npy(array), IMAGE)
        assert message.startswith("An array must be of whole numbers of 8 to 64 bits, floats")

    def test_nothing_is_unpickled(self) -> None:
        refused(with_header(header("|O", (1, 1)), pickle.dumps(Evil())), IMAGE)
        assert not os.path.exists("/tmp/vllm_raster_io_was_here")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            "[]",
            "1",
            "{'descr': '<u2'}",
            "{'descr': '<u2', 'fortran_order': False, 'shape': (4, 5, 6), 'more': 1}",
            header(shape=[4, 5, 6]),
            header(shape=(4.0, 5, 6)),
            header(shape=(True, 5, 6)),
            header(shape=4),
            header(fortran=0),
            header(fortran=None),
            "(" * 4_000,
            "[" * 2_000 + "]" * 2_000,
            "-" * 4_000 + "1",
            "1 + 1",
            "__import__('os').system('true')",
            "{'descr': '<u2', 'fortran_order': False, 'shape': (4, 5, 6)",
            "\0" * 50,
            "9" * 4_000,
        ],
    )
    def test_other_headers(self, text: str) -> None:
        message = refused(with_header(text, bytes(240)), IMAGE)
        assert "NumPy file" in message
        assert len(message) < 200

    @pytest.mark.parametrize("shape", [(), (5,), (1, 1, 1, 5, 6), (0, 5), (4, 5, 0), (4, -5, -6)])
    def test_other_shapes(self, shape: tuple[int, ...]) -> None:
        message = refused(with_header(header(shape=shape)), IMAGE)
        assert message.startswith("An array must be (height, width), (bands, height, width) or (")

    @pytest.mark.parametrize(
        "descr", ["u2; 1", "<u2,<u2", "(2,2)u2", "u16", "<f16", "=O", 5, None, ["u2"], "<u2" * 900]
    )
    def test_types_that_are_none(self, descr: Any) -> None:
        assert "An array must be of whole numbers" in refused(with_header(header(descr)), IMAGE)

    @pytest.mark.parametrize("change", [-1, 1, -100, 10**6])
    def test_of_another_length(self, change: int) -> None:
        content = npy(numbers(4, 5, 6))
        content = content[:change] if change < 0 else content + bytes(change)
        message = refused(content, IMAGE)
        assert "has 240 bytes, but " in message

    @pytest.mark.parametrize("version", [0, 4, 255])
    def test_other_versions(self, version: int) -> None:
        content = b"\x93NUMPY" + bytes([version, 0]) + npy(numbers(4, 5, 6))[8:]
        assert "version other than 1, 2 and 3" in refused(content, IMAGE)

    def test_cut_off(self) -> None:
        content = npy(numbers(4, 5, 6))
        for length in range(len(content)):
            with pytest.raises(RasterError):
                read_all(content[:length])

    @pytest.mark.parametrize("length", [4_097, 10_000, 2**32 - 1])
    def test_long_headers(self, length: int) -> None:
        content = b"\x93NUMPY\2\0" + struct.pack("<I", length) + b" " * 5_000
        with quick_and_small():
            assert "header is cut off, or longer" in refused(content, IMAGE)

    @pytest.mark.parametrize(
        ("shape", "told"),
        [
            ((4, 10**6, 10**6), "pixels"),
            ((1025, 1, 1), "bands"),
            ((33, 32, 1, 1), "bands"),
            ((10**30, 1, 1), "bands"),
            ((1, 10**30), "pixels"),
        ],
    )
    def test_claims(self, shape: tuple[int, ...], told: str) -> None:
        with quick_and_small():
            message = refused(with_header(header(shape=shape), bytes(100)), IMAGE, LimitError)
        assert f"{told}, and at most" in message

    def test_claims_within_the_limits(self) -> None:
        with quick_and_small():
            message = refused(with_header(header(shape=(1000, 30_000, 30_000)), bytes(100)), IMAGE)
        assert "but 100 come after the header" in message


def test_a_closed_array_is_not_read() -> None:
    scene = open_scene(npy(numbers(4, 5, 6)))
    scene.close()
    scene.close()
    with pytest.raises(RasterError, match="closed"):
        scene.read(Window(0, 0, 1, 1), [0])
