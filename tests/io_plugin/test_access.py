"""Where a raster may come from, and how it is written."""

import base64
from typing import Any

import numpy as np
import pytest

from vllm_raster_io import uploads
from vllm_raster_io.access import Access
from vllm_raster_io.errors import AccessError, LimitError, RasterIOError, RequestError
from vllm_raster_io.limits import Limits
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload

CONTENT = np.random.default_rng(0).integers(0, 256, 5_000, np.uint8).tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 15, 16, 17, 57, 4_999])
@pytest.mark.parametrize("line", [None, b"\n", b"\r\n", b"\r"])
def test_base64_with_and_without_line_breaks(size: int, line: bytes | None) -> None:
    content = CONTENT[:size]
    text = base64.b64encode(content)
    if line is not None:
        text = base64.encodebytes(content).replace(b"\n", line)
    assert sent(text.decode()) == content


def test_more_than_one_piece() -> None:
    # Pieces are cut where lines of 77 characters are not.
    content = CONTENT * 500
    assert sent(base64.b64encode(content).decode()) == content
    assert sent(base64.encodebytes(content).decode()) == content


@pytest.mark.parametrize(
    "head",
    [
        "data:image/tiff;base64,",
        "data:;base64,",
        "DATA:IMAGE/PNG;BASE64,",
        "data:image/png;name=a.tif;charset=utf-8;base64,",
        "data:text/html;base64,",
    ],
)
def test_a_data_uri_whatever_it_says_it_is(head: str) -> None:
    assert sent(head + base64.b64encode(CONTENT).decode()) == CONTENT
    assert sent(head + base64.encodebytes(CONTENT).decode()) == CONTENT
    for step in (1, 3, 10, 30):
        upload, text = Upload(), (head + base64.b64encode(CONTENT).decode()).encode()
        for start in range(0, len(text), step):
            upload.feed(text[start : start + step])
        assert sent(upload) == CONTENT


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data:image/tiff,SUkqAA==", "a data URI that is not in base64"),
        ("data:,", "a data URI that is not in base64"),
        ("data:image/tiff;base32,SUkqAA==", "a data URI that is not in base64"),
        ("data:image/tiff;base64;x,SUkqAA==", "a data URI that is not in base64"),
        ("data:" + "x" * 3_000_000, "a data URI without a comma"),
        ("data:image/tiff;base64", "it ends before any data"),
        ("data", "it ends before any data"),
        ("data:image/tiff;base64,", "`data` is empty"),
        ("data:image/tiff;base64,SUkq%41A=", "is not: only base64 data"),
        ("data:image/tiff;base64,data:image/tiff;base64,SUkq", "is not: only base64 data"),
        ("data:image/tiff;base64,SUkqA", "multiple of four"),
    ],
)
def test_a_data_uri_that_is_none(text: str, told: str) -> None:
    message = refusal(RequestError, data=text)
    assert told in message
    assert len(message) < 150


def test_a_file_that_came_in_pieces() -> None:
    upload = Upload()
    for piece in (b"SUk", b"qAAE", b"C", b"Aw=="):
        upload.feed(piece)
    assert sent(upload) == b"II*\0\1\2\3"


@pytest.mark.parametrize("pieces", [(b"SUk=", b"SUk="), (b"SUkqAA==", b"A", b"AAA")])
def test_a_piece_after_the_padding(pieces: tuple[bytes, ...]) -> None:
    upload = Upload()
    for piece in pieces:
        upload.feed(piece)
    assert "after the padding" in refusal(RequestError, data=upload)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not base64!", id="text"),
        pytest.param("SUkqAA", id="no padding"),
        pytest.param("SUkqAA=", id="half the padding"),
        pytest.param("SUkqAA===", id="too much padding"),
        pytest.param("=SUkqAA=", id="padding at the start"),
        pytest.param("SU=qAA==", id="padding in the middle"),
        pytest.param("SUk=SUk=", id="two files"),
        pytest.param("SUk=\nSUk=", id="two files on two lines"),
        pytest.param("====", id="only padding"),
        pytest.param("A", id="one character"),
        pytest.param("SUkqAA== ", id="a space after it"),
        pytest.param("SUk qAA==", id="a space within"),
        pytest.param("SUkq\tAA=", id="a tab"),
        pytest.param("-_-_", id="url-safe alphabet"),
        pytest.param("SÜkqAA==", id="not ASCII"),
        pytest.param("\uff33\uff35\uff4b\uff51", id="wide letters"),
        pytest.param("SUkq\ud800AA=", id="a lone surrogate"),
        pytest.param("SUkq\0AA=", id="a zero"),
        pytest.param("SUkqAA==" + "A" * 2_000_000, id="more in the next piece"),
    ],
)
def test_what_is_not_base64_is_refused(text: str) -> None:
    message = refusal(RequestError, data=text)
    assert message.startswith("`data` must be a file in base64, but is not: ")
    assert len(message) < 150


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SUkq AA==", "it has blanks, which must be left out"),
        ("SUkq\n \tAA==\n", "it has blanks, which must be left out"),
        ("SUk_AA--", "must have + for - and / for _"),
        ("scene_1.tif", "only base64 data"),
        ("a scene.tif", "only base64 data"),
    ],
)
def test_base64_of_other_kinds_is_told_what_to_change(text: str, told: str) -> None:
    assert told in refusal(RequestError, data=text)


def test_the_url_safe_alphabet_is_another() -> None:
    content = b"\xfb\xff\xbf\xfe" * 30
    assert sent(base64.b64encode(content).decode()) == content
    refusal(RequestError, data=base64.urlsafe_b64encode(content).decode())


@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n"])
def test_nothing_is_refused(text: str) -> None:
    assert refusal(RequestError, data=text) == "`data` is empty, but must be a file in base64"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"data": "/etc/passwd", "data_format": "path"}, "not set up to read files of its own"),
        ({"data": "http://10.0.0.1/", "data_format": "url"}, "not set up to fetch URLs"),
        ({"data": "SUkqAA==", "out_data_format": "path"}, "not set up to write files"),
    ],
)
def test_paths_and_urls_are_refused_with_the_reason(fields: dict[str, Any], told: str) -> None:
    message = refusal(AccessError, **fields)
    assert told in message
    assert "'b64_json'" in message  # what to do instead
    assert fields["data"] not in message


class TestLists:
    def test_in_order(self) -> None:
        files = [CONTENT[:100], CONTENT[100:], b"x"]
        encoded = [base64.b64encode(one).decode() for one in files]
        sent = Access().sources(
            RasterRequest(data=[encoded[0], Upload.of(files[1]), encoded[2]]), 3
        )
        assert [bytes(one.content[:]) for one in sent] == files

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_each_must_be_base64(self, position: int) -> None:
        data = ["SUkqAA=="] * 3
        data[position] = "not base64!"
        assert "must be a file in base64" in refusal(RequestError, 3, data=data)

    @pytest.mark.parametrize("kind", ["path", "url"])
    def test_paths_and_urls_are_refused_alike(self, kind: str) -> None:
        data = ["/etc/passwd", "SUkqAA=="]
        message = refusal(AccessError, 2, data=data, data_format=kind)
        assert "for its clients" in message
        assert "passwd" not in message

    @pytest.mark.parametrize(("dates", "count"), [(1, 2), (3, 2), (3, 4), (2, 100_000)])
    def test_the_number_is_looked_at_first(self, dates: int, count: int) -> None:
        message = refusal(RequestError, dates, data=["not base64!"] * count)
        assert f"`data` holds {count} files" in message


def test_a_path_is_refused_even_if_the_file_came_too() -> None:
    refusal(AccessError, data=Upload.of(b"II*\0"), data_format="path")


class TestLimit:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uploads, "LIMITS", Limits(bytes=16))

    def test_as_much_as_allowed(self) -> None:
        assert sent(base64.b64encode(bytes(12)).decode()) == bytes(12)

    def test_one_more(self) -> None:
        message = refusal(LimitError, data="A" * 17)
        assert "17 bytes" in message
        assert "at most 16" in message

    def test_line_breaks_count(self) -> None:
        refusal(LimitError, data="AAAA\n" * 4)

    def test_what_comes_in_pieces(self) -> None:
        upload = Upload()
        for _ in range(5):
            upload.feed(b"AAAA")
        refusal(LimitError, data=upload)


class TestNumberOfFiles:
    """Dates and files are counted apart: a scene of many bands may come as one file a band."""

    def files(self, count: int, dates: int, bands: int) -> int:
        request = RasterRequest(data=["SUkqAA=="] * count)
        return len(Access().sources(request, dates, bands=bands))

    @pytest.mark.parametrize(
        ("dates", "bands", "count"), [(64, 4, 64), (64, 8, 512), (1, 512, 512), (100, 3, 1)]
    )
    def test_as_many_as_allowed(self, dates: int, bands: int, count: int) -> None:
        assert self.files(count, dates, bands) == count

    @pytest.mark.parametrize(
        ("dates", "bands", "count", "told"),
        [
            (1, 513, 513, "513 files, and at most 512 are allowed; send one file with all bands"),
            (65, 1, 65, "65 frames, and at most 64 are allowed; send fewer dates"),
            (65, 2, 130, "65 frames, and at most 64"),
        ],
    )
    def test_one_more(self, dates: int, bands: int, count: int, told: str) -> None:
        with pytest.raises(LimitError, match=told):
            self.files(count, dates, bands)


def sent(data: str | Upload) -> bytes:
    """What the server has of a file, which is told by its first bytes too."""
    (file,) = Access().sources(RasterRequest(data=data))
    content = bytes(file.content[:])
    assert file.head == content[:16]
    return content


def serve(request: RasterRequest, dates: int) -> None:
    access = Access()
    access.target(request)
    access.sources(request, dates)


def refusal(kind: type[RasterIOError], dates: int = 1, **fields: Any) -> str:
    with pytest.raises(RasterIOError) as caught:
        serve(RasterRequest(**fields), dates)
    assert type(caught.value) is kind
    return str(caught.value)
