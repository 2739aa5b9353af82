"""Files that a client names by URL: from allowed hosts at public addresses, and from no others."""

import asyncio
import gzip
import http.client
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpcore
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_raster_io import fetching
from vllm_raster_io.access import Access
from vllm_raster_io.addresses import is_public, may_be_private, resolve
from vllm_raster_io.deadlines import Deadline
from vllm_raster_io.errors import AccessError, LimitError, RasterError, RasterIOError
from vllm_raster_io.fetching import Fetcher
from vllm_raster_io.limits import Limits
from vllm_raster_io.rasters import Scene
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings
from vllm_raster_io.tiling import Window
from vllm_raster_io.urls import FileUrl, HostRule, fits_any

from ..factories import make_raster

SCENE = make_raster(height=20, width=30)
PUBLIC = "93.184.215.14"
TOKEN = "the-secret-token"
HOST = "tiles.example.org"


class Host(BaseHTTPRequestHandler):
    """What it answers is named by the path."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        name, _, rest = self.path[1:].partition("?")[0].partition("/")
        with suppress(ConnectionError):
            getattr(self, f"get_{name}", self.get_none)(rest)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def get_none(self, rest: str) -> None:
        self.answer(404, b"not here")

    def get_scene(self, rest: str) -> None:
        self.answer(200, SCENE, Set_Cookie="a=b")

    def get_status(self, rest: str) -> None:
        self.answer(int(rest), SCENE)

    def get_to(self, rest: str) -> None:
        status, _, location = rest.partition("/")
        self.answer(int(status), b"over there", Location=location)

    def get_nowhere(self, rest: str) -> None:
        self.answer(302)

    def get_round(self, rest: str) -> None:
        left = int(rest)
        self.answer(302, Location=f"/round/{left - 1}" if left > 1 else "/scene")

    def get_packed(self, rest: str) -> None:
        self.answer(200, gzip.compress(SCENE), Content_Encoding=rest or "gzip")

    def get_chunked(self, rest: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(SCENE), 1000):
            piece = SCENE[start : start + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def get_until_the_end(self, rest: str) -> None:
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        self.wfile.write(SCENE)

    def get_cut_off(self, rest: str) -> None:
        self.close_connection = True
        self.answer(200, SCENE[:1000], Content_Length=str(len(SCENE)))

    def get_endless(self, rest: str) -> None:
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(bytes(100_000))

    def get_claims(self, rest: str) -> None:
        self.answer(200, b"II*\0", Content_Length=rest)

    def get_silent(self, rest: str) -> None:
        time.sleep(3)

    def get_drips(self, rest: str) -> None:
        """A byte now and then: of the body, of the headers, or of answers before the answer."""
        self.close_connection = True
        start = b"HTTP/1.1 200 OK\r\n"
        drop = {"body": b"x", "headers": b"X-A: b\r\n", "early": b"HTTP/1.1 103 Early\r\n\r\n"}[
            rest
        ]
        self.wfile.write({"body": start + b"\r\n", "headers": start, "early": b""}[rest])
        for _ in range(100):
            self.wfile.write(drop)
            time.sleep(0.05)

    def get_rubbish(self, rest: str) -> None:
        self.close_connection = True
        self.wfile.write(b"\0\1\2\3" * 100)

    def get_many(self, rest: str) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.wfile.write(b"X-A: " + b"b" * 5000 + b"\r\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a host on this machine."""
    with serving() as port:
        yield port


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _forget() -> None:
    Host.seen.clear()


@pytest.fixture(autouse=True)
def _all_is_closed() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    deadline = time.monotonic() + 5
    while (left := sockets(set(os.listdir("/proc/self/fd")) - before)) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)  # the server's side of a connection ends a moment later
    assert not left


def sockets(descriptors: set[str]) -> list[str]:
    found = []
    for one in descriptors:
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    return [one for one in found if one.startswith("socket") or "vllm-raster-" in one]


def private(port: int, **settings: Any) -> Settings:
    """Settings that allow the host on this machine."""
    rule = HostRule("127.0.0.1", port=port)
    return Settings(allowed_private_hosts=(rule,), **{"allow_http": True, **settings})


def fetch(text: str, settings: Settings, seconds: float = 5, **options: Any) -> bytes:
    with Fetcher(settings, **options).fetch(text, Deadline(seconds, "Fetching")) as file:
        assert not file.sent
        return bytes(file.content[:])


def refusal(kind: type[RasterIOError], text: str, settings: Settings, **options: Any) -> str:
    with pytest.raises(RasterIOError) as caught:
        fetch(text, settings, **options)
    assert type(caught.value) is kind, caught.value
    message = str(caught.value)
    assert TOKEN not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


class Network:
    """Answers for resolver and sockets: names lead to addresses, and these to a local port."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, port: int, **names: list[list[str]]
    ) -> None:
        self.asked: list[tuple[str, int]] = []
        self.reached: list[tuple[str, int]] = []
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.dead: set[str] = set()
        connect = httpcore.SyncBackend.connect_tcp

        def connect_tcp(_: Any, host: str, asked: int, *args: Any, **kwargs: Any) -> Any:
            self.reached.append((host, asked))
            if host in self.dead:
                raise httpcore.ConnectError
            return Elsewhere(connect(httpcore.SyncBackend(), "127.0.0.1", port, *args, **kwargs))

        monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect_tcp)

    def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        answers = self.names.get(host)
        if not answers:
            raise socket.gaierror("no such host")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Elsewhere(httpcore.NetworkStream):
    """A connection to this machine that says to be to another."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def get_extra_info(self, info: str) -> Any:
        if info == "server_addr":
            return (PUBLIC, 443)
        return self._stream.get_extra_info(info)

    def start_tls(self, *args: Any, **kwargs: Any) -> Any:
        return self._stream.start_tls(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in ("read", "write", "close"):
            return getattr(object.__getattribute__(self, "_stream"), name)
        return object.__getattribute__(self, name)


PLAIN = Settings(
    allowed_hosts=(HostRule(HOST), HostRule("example.com", below=True)), allow_http=True
)


class TestFetching:
    def test_a_file(self, port: int) -> None:
        assert fetch(f"http://127.0.0.1:{port}/scene?x={TOKEN}#here", private(port)) == SCENE
        ((path, headers),) = Host.seen
        assert path == f"/scene?x={TOKEN}"
        assert headers["host"] == f"127.0.0.1:{port}"
        assert headers["accept-encoding"] == "identity"

    @pytest.mark.parametrize("path", ["chunked", "until_the_end", "packed/identity"])
    def test_in_every_form(self, port: int, path: str) -> None:
        content = fetch(f"http://127.0.0.1:{port}/{path}", private(port))
        assert (gzip.decompress(content) if path.startswith("packed") else content) == SCENE

    def test_a_scene(self, port: int) -> None:
        access = Access(private(port))
        url = f"http://127.0.0.1:{port}/scene"
        files = access.sources(RasterRequest(data=[url, url], data_format="url"), dates=2)
        for file in files:
            with Scene(file) as scene:
                assert scene.read(Window(0, 0, 20, 30), [0])[1].all()

    def test_nothing_of_the_surroundings_takes_part(
        self, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
            monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
        (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {TOKEN}\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        for _ in range(2):
            assert fetch(f"http://127.0.0.1:{port}/scene", private(port)) == SCENE
        for _, headers in Host.seen:
            assert not {"authorization", "cookie", "proxy-authorization", "referer"} & set(headers)

    def test_no_file_is_left(
        self, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        fetcher = Fetcher(private(port))
        with fetcher.fetch(f"http://127.0.0.1:{port}/scene", Deadline(5, "")) as file:
            assert not list(tmp_path.iterdir())
            assert len(file.content) == len(SCENE)

    def test_a_full_disk(self, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        message = refusal(RasterError, f"http://127.0.0.1:{port}/scene", private(port))
        assert message == "`data`: the URL could not be stored: No such file or directory"


class TestAnswers:
    @pytest.mark.parametrize("status", [201, 204, 206, 300, 304, 400, 401, 403, 404, 500, 503])
    def test_no_file(self, port: int, status: int) -> None:
        url = f"http://127.0.0.1:{port}/status/{status}?{TOKEN}"
        assert f"with status {status}, not with a file" in refusal(RasterError, url, private(port))

    @pytest.mark.parametrize("kind", ["gzip", "deflate", "br", "GZIP", "identity, gzip", "x"])
    def test_compressed_bodies_are_not_unpacked(self, port: int, kind: str) -> None:
        url = f"http://127.0.0.1:{port}/packed/{kind.replace(' ', '')}"
        assert "compressed" in refusal(RasterError, url, private(port))

    def test_cut_off(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}/cut_off"
        assert "not answered with a whole file" in refusal(RasterError, url, private(port))

    @pytest.mark.parametrize("path", ["rubbish", "many"])
    def test_no_http(self, port: int, path: str) -> None:
        url = f"http://127.0.0.1:{port}/{path}"
        assert "not answered with a whole file" in refusal(RasterError, url, private(port))

    def test_nobody_there(self) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        message = refusal(RasterError, f"http://127.0.0.1:{port}/{TOKEN}", private(port))
        assert message == "`data`: the URL names a host that cannot be reached"


class TestLimits:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits = Limits(bytes=len(SCENE), redirects=3)
        monkeypatch.setattr(fetching, "LIMITS", limits)

    def test_as_many_bytes_as_allowed(self, port: int) -> None:
        for path in ("scene", "chunked"):
            assert fetch(f"http://127.0.0.1:{port}/{path}", private(port)) == SCENE

    @pytest.mark.parametrize("path", ["endless", f"claims/{len(SCENE) + 1}", f"claims/{10**15}"])
    def test_more(self, port: int, path: str) -> None:
        message = refusal(LimitError, f"http://127.0.0.1:{port}/{path}", private(port))
        assert f"bytes, and at most {len(SCENE)} are allowed" in message

    def test_more_in_two_files(self, port: int) -> None:
        access, url = Access(private(port)), f"http://127.0.0.1:{port}/scene"
        with pytest.raises(LimitError, match="bytes"):
            access.sources(RasterRequest(data=[url, url], data_format="url"), dates=2)

    def test_as_many_redirects_as_allowed(self, port: int) -> None:
        assert fetch(f"http://127.0.0.1:{port}/round/3", private(port)) == SCENE

    def test_one_more(self, port: int) -> None:
        message = refusal(LimitError, f"http://127.0.0.1:{port}/round/4", private(port))
        assert "redirected more often than the 3 times" in message
        assert len(Host.seen) == 4

    @pytest.mark.parametrize("path", ["silent", "drips/body", "drips/headers", "drips/early"])
    def test_seconds(self, port: int, path: str) -> None:
        started = time.perf_counter()
        with pytest.raises((LimitError, RasterError), match=r"took longer|in time"):
            fetch(f"http://127.0.0.1:{port}/{path}", private(port), seconds=0.4)
        assert time.perf_counter() - started < 1

    def test_nobody_waits_any_more(self, port: int) -> None:
        deadline = Deadline(60, "Fetching")
        threading.Timer(0.3, deadline.cancel).start()
        started = time.perf_counter()
        with pytest.raises(LimitError, match="given up"):
            Fetcher(private(port)).fetch(f"http://127.0.0.1:{port}/drips/body", deadline)
        assert time.perf_counter() - started < 1

    def test_the_fetching_has_seconds_of_its_own(
        self, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("vllm_raster_io.access.LIMITS", Limits(fetch_seconds=1))
        url = f"http://127.0.0.1:{port}/drips/body"
        started = time.perf_counter()
        with pytest.raises(LimitError, match="Fetching what `data` names took longer than the 1 s"):
            Access(private(port)).sources(RasterRequest(data=url, data_format="url"))
        assert time.perf_counter() - started < 2


class TestHosts:
    @pytest.mark.parametrize(
        "url",
        [
            "https://example.org/a.tif",
            "https://evil.org/tiles.example.org",
            f"https://{HOST}.evil.org/",
            f"https://x{HOST}/",
            f"https://x.{HOST}/",
            "https://example.com/",
            "https://xexample.com/",
            "https://example.com.evil.org/",
            f"https://{HOST}:8443/",
            f"https://{HOST}:80/",
            f"http://{HOST}:443/",
            "https://127.0.0.1/",
            "https://[::1]/",
            f"https://{PUBLIC}/",
            "https://localhost/",
        ],
    )
    def test_others_are_refused(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        network = Network(monkeypatch, 9)
        message = refusal(AccessError, url, PLAIN, resolver=network.resolve)
        assert "names a host and port that this server may not fetch from" in message
        assert not network.asked
        assert not network.reached

    @pytest.mark.parametrize(
        "url",
        [
            f"https://{HOST}/",
            f"https://{HOST}:443/",
            f"http://{HOST}",
            f"HTTPS://{HOST.upper()}/",
            f"https://{HOST}./a",
            "https://a.example.com/",
            "https://b.a.example.com/?q",
        ],
    )
    def test_allowed(self, url: str) -> None:
        assert fits_any(PLAIN.allowed_hosts, FileUrl.parse(url))

    def test_http_only_where_it_is_said(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}/scene"
        message = refusal(AccessError, url, private(port, allow_http=False))
        assert "must begin with https://" in message
        assert not Host.seen

    @pytest.mark.parametrize(
        ("url", "told"),
        [
            (f"https://me@{HOST}/", "no user name and no password"),
            (f"https://me:{TOKEN}@{HOST}/", "no user name and no password"),
            (f"https://@{HOST}/", "no user name and no password"),
            (f"https://{HOST}:443@evil.org/", "no user name and no password"),
            (f"https://evil.org\\@{HOST}/", "must be written with %"),
            (f"https://{HOST}\\.evil.org/", "must be written with %"),
            (f"https:\\\\{HOST}/", "must be written with %"),
            (f"https://{HOST}/a b", "must be written with %"),
            (f" https://{HOST}/", "must be written with %"),
            (f"https://{HOST}/\n", "must be written with %"),
            (f"https://{HOST}/a\r\nHost: evil.org", "must be written with %"),
            (f"https://{HOST}/\0", "must be written with %"),
            (f"https://{HOST}/ü", "must be written with %"),
            ("https://tiles.example。org/", "must be written with %"),
            ("https://\uff54\uff49les.example.org/", "must be written with %"),
            ("https://bücher.example/", "must be written with %"),
            ("https://%74iles.example.org/", "in ASCII letters"),
            ("https://tiles.example.org%2f.evil.org/", "in ASCII letters"),
            (f"https://{HOST}../", "in ASCII letters"),
            ("https://.example.com/", "in ASCII letters"),
            ("https://a..example.com/", "in ASCII letters"),
            ("https://-a.example.com/", "in ASCII letters"),
            ("https://*.example.com/", "in ASCII letters"),
            (f"https://{'a' * 64}.example.com/", "in ASCII letters"),
            (f"https://{'a.' * 200}example.com/", "in ASCII letters"),
            ("https:///a.tif", "does not name a host"),
            (f"https:{HOST}/", "must begin with https://"),
            (f"https:/{HOST}/", "must begin with https://"),
            (f"//{HOST}/", "must begin with https://"),
            (HOST, "must begin with https://"),
            ("", "must be written with %"),
            ("/etc/passwd", "must begin with https://"),
            ("file:///etc/passwd", "must begin with https://"),
            (f"ftp://{HOST}/", "must begin with https://"),
            (f"gopher://{HOST}/_GET", "must begin with https://"),
            (f"data:image/tiff;base64,{TOKEN}", "must begin with https://"),
            (f"/vsicurl/https://{HOST}/", "must begin with https://"),
            ("unix:///run/docker.sock", "must begin with https://"),
            (f"https://{HOST}:/", "does not name a host"),
            (f"https://{HOST}:0/", "a port that is not"),
            (f"https://{HOST}:65536/", "a port that is not"),
            (f"https://{HOST}:99999999999/", "does not name a host"),
            (f"https://{HOST}:-1/", "does not name a host"),
            (f"https://{HOST}:4٤3/", "must be written with %"),
            (f"https://{HOST}:443:443/", "does not name a host"),
            ("https://::1/", "does not name a host"),
            ("https://[::1/", "does not name a host"),
            ("https://[::1]a/", "does not name a host"),
            ("https://[fe80::1%25eth0]/", "does not name a host"),
            ("https://[1.2.3.4]/", "not the usual one"),
            ("https://[::1::]/", "not the usual one"),
            ("https://2130706433/", "not the usual one"),
            ("https://0x7f000001/", "not the usual one"),
            ("https://0x7f.1/", "not the usual one"),
            ("https://127.1/", "not the usual one"),
            ("https://0177.0.0.1/", "not the usual one"),
            ("https://127.0.0.0x1/", "not the usual one"),
            ("https://127.0.0.01/", "not the usual one"),
            ("https://127.0.0.1.1/", "not the usual one"),
            ("https://1.2.3.256/", "not the usual one"),
            ("https://0/", "not the usual one"),
            (f"https://{HOST}/{'a' * 9000}", "is longer than"),
        ],
    )
    def test_what_is_no_plain_url(self, url: str, told: str) -> None:
        message = refusal(AccessError, url, PLAIN)
        assert told in message
        assert len(message) < 150

    def test_punycode_is_a_name_like_others(self) -> None:
        rule = HostRule.parse("xn--bcher-kva.example")
        assert rule.fits(FileUrl.parse("https://XN--bcher-KVA.example/"))

    @given(st.text(max_size=30))
    @example(f"@{HOST}")
    @example(f"#@{HOST}")
    @example(f"?@{HOST}/")
    @example(f"\t.{HOST}")
    def test_however_it_is_written_another_host_is_none_of_ours(self, text: str) -> None:
        for url in (f"https://evil.org{text}", f"https://{text}", f"https://{HOST}{text}"):
            try:
                parsed = FileUrl.parse(url)
            except AccessError:
                continue
            # The standard library, which mends some of what is refused here, finds the same host.
            connection = http.client.HTTPSConnection(parsed.authority)
            assert connection.host == parsed.host
            if fits_any(PLAIN.allowed_hosts, parsed):
                assert parsed.host == HOST or parsed.host.endswith(".example.com")
            assert "\r" not in parsed.target
            assert " " not in parsed.target


ALLOWED_ADDRESSES = ["8.8.8.8", PUBLIC, "1.1.1.1", "100.63.255.255", "2606:4700::1111", "2a00::1"]
REFUSED_ADDRESSES = [
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1",
    "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "5f00::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1",
]  # fmt: skip
NEVER = [
    "0.0.0.0", "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "224.0.0.1",
    "255.255.255.255", "::", "::ffff:169.254.169.254", "fe80::1", "fe80::1%1", "ff02::1",
    "fd00:ec2::254",
    # The same in IPv6's clothes: compatible, translated, by NAT64, 6to4 and Teredo.
    "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::", "2001::5601:5601",
]  # fmt: skip


class TestAddresses:
    @pytest.mark.parametrize("address", ALLOWED_ADDRESSES)
    def test_public(self, address: str) -> None:
        assert is_public(address)
        assert may_be_private(address)

    @pytest.mark.parametrize("address", REFUSED_ADDRESSES)
    def test_not_public(self, address: str) -> None:
        assert not is_public(address)

    @pytest.mark.parametrize("address", NEVER)
    def test_not_even_where_private_ones_are_allowed(self, address: str) -> None:
        assert not may_be_private(address)

    @pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "fc00::1", "192.168.0.1"])
    def test_private(self, address: str) -> None:
        assert may_be_private(address)

    @pytest.mark.parametrize("address", REFUSED_ADDRESSES)
    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_nothing_is_connected_to(
        self, address: str, scheme: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, 9, tiles_example_org=[[address]])
        url = f"{scheme}://{HOST}/{TOKEN}"
        message = refusal(AccessError, url, PLAIN, resolver=network.resolve)
        assert message == "`data`: the URL leads to an address that is not public"
        assert not network.reached

    def test_one_private_spoils_all(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        network = Network(monkeypatch, port, tiles_example_org=[[PUBLIC, "10.0.0.1"]])
        refusal(AccessError, f"http://{HOST}/scene", PLAIN, resolver=network.resolve)
        assert not network.reached

    def test_the_checked_one_is_connected_to(
        self, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The next answer of the resolver would be another, but nobody asks.
        answers = [[PUBLIC], ["127.0.0.1"], ["169.254.169.254"]]
        network = Network(monkeypatch, port, tiles_example_org=answers)
        assert fetch(f"http://{HOST}/scene", PLAIN, resolver=network.resolve) == SCENE
        assert network.asked == [(HOST, 80)]
        assert network.reached == [(PUBLIC, 80)]
        assert Host.seen[0][1]["host"] == HOST

    def test_a_redirect_is_resolved_and_checked_anew(
        self, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, port, tiles_example_org=[[PUBLIC], ["127.0.0.1"]])
        url = f"http://{HOST}/to/302/http://{HOST}/scene"
        message = refusal(AccessError, url, PLAIN, resolver=network.resolve)
        assert message == "`data`: redirect 1 of the URL leads to an address that is not public"
        assert network.reached == [(PUBLIC, 80)]

    def test_a_few_are_tried(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        many = [f"8.8.8.{i}" for i in range(10)]
        network = Network(monkeypatch, port, tiles_example_org=[many])
        network.dead = set(many[:2])
        assert fetch(f"http://{HOST}/scene", PLAIN, resolver=network.resolve) == SCENE
        network.dead = set(many)
        message = refusal(RasterError, f"http://{HOST}/", PLAIN, resolver=network.resolve)
        assert message == "`data`: the URL names a host that cannot be reached"
        assert len(network.reached) == 3 + 4

    def test_no_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        network = Network(monkeypatch, 9)
        message = refusal(RasterError, f"https://{HOST}/", PLAIN, resolver=network.resolve)
        assert message == "`data`: the URL names a host that cannot be reached"

    def test_a_public_address_of_this_machine(self, port: int) -> None:
        # As of a server on the internet that is told to ask itself.
        url = f"http://127.0.0.1:{port}/scene"
        settings = Settings(allowed_hosts=(HostRule("127.0.0.1", port=port),), allow_http=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vllm_raster_io.addresses.is_public", lambda _: True)
            message = refusal(AccessError, url, settings)
        assert message == "`data`: the URL leads to an address that is not public"
        assert not Host.seen

    def test_an_address_among_the_allowed_hosts_must_be_public_too(self, port: int) -> None:
        settings = Settings(allowed_hosts=(HostRule("127.0.0.1", port=port),), allow_http=True)
        refusal(AccessError, f"http://127.0.0.1:{port}/scene", settings)
        assert not Host.seen

    def test_private_is_only_who_is_named(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        network = Network(monkeypatch, port, tiles_example_org=[["10.0.0.1"]])
        refusal(AccessError, f"http://{HOST}/scene", PLAIN, resolver=network.resolve)
        settings = Settings(allowed_private_hosts=(HostRule(HOST),), allow_http=True)
        assert fetch(f"http://{HOST}/scene", settings, resolver=network.resolve) == SCENE

    def test_the_system_is_asked(self) -> None:
        assert resolve("127.0.0.1", 80) == ["127.0.0.1"]
        assert resolve("::1", 80) == ["::1"]
        with pytest.raises(OSError, match=r"."):
            resolve("nowhere.invalid", 80)


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_within_a_host(self, port: int, status: int) -> None:
        for location in (
            "/scene",
            f"http://127.0.0.1:{port}/scene",
            "../../scene?a",
            f"//127.0.0.1:{port}/scene",
        ):
            url = f"http://127.0.0.1:{port}/to/{status}/{location}"
            assert fetch(url, private(port)) == SCENE

    @pytest.mark.parametrize(
        ("location", "told"),
        [
            ("http://169.254.169.254/latest/meta-data/", "host and port"),
            ("http://[::ffff:169.254.169.254]/", "host and port"),
            ("http://2852039166/", "not the usual one"),
            ("http://metadata.google.internal/", "host and port"),
            ("http://localhost:8000/health", "host and port"),
            ("//evil.org/", "host and port"),
            ("file:///etc/passwd", "must begin with"),
            ("ftp://127.0.0.1/", "must begin with"),
            ("gopher://127.0.0.1/", "must begin with"),
            ("http://me:secret@127.0.0.1/", "no user name"),
            ("http://[/", "does not name a host"),
            ("javascript:alert(1)", "must begin with"),
        ],
    )
    def test_elsewhere(self, port: int, location: str, told: str) -> None:
        url = f"http://127.0.0.1:{port}/to/302/{location}"
        message = refusal(AccessError, url, private(port))
        assert message.startswith("`data`: redirect 1 of the URL ")
        assert told in message
        assert "169.254" not in message
        assert len(Host.seen) == 1

    def test_nowhere(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}/nowhere"
        assert "redirect 1" in refusal(AccessError, url, private(port))

    def test_from_https_to_http(self) -> None:
        url = FileUrl.parse(f"https://{HOST}/a").follow(f"http://{HOST}/a")
        settings = Settings(allowed_hosts=(HostRule(HOST),))
        with pytest.raises(AccessError, match="https"):
            Fetcher(settings)._check(url)


class TestEncrypted:
    @pytest.fixture(scope="class")
    def identity(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A certificate for the host, signed by itself, with its key."""
        pytest.importorskip("cryptography")
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        path = tmp_path_factory.mktemp("identity") / "both.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path

    @pytest.fixture
    def secure_port(self, identity: Path) -> Iterator[int]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)
        self.named: list[str | None] = []
        context.sni_callback = lambda _, name, __: self.named.append(name)
        with serving(context) as port:
            yield port

    @pytest.fixture
    def trusting(self, identity: Path) -> Callable[..., Fetcher]:
        def trusting(settings: Settings, network: Network) -> Fetcher:
            fetcher = Fetcher(settings, network.resolve)
            fetcher.__dict__["_ssl_context"] = ssl.create_default_context(cafile=identity)
            return fetcher

        return trusting

    def test_the_name_is_checked_and_the_address_pinned(
        self, secure_port: int, trusting: Callable[..., Fetcher], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, secure_port, tiles_example_org=[[PUBLIC], ["127.0.0.1"]])
        settings = Settings(allowed_hosts=(HostRule(HOST),))
        with trusting(settings, network).fetch(f"https://{HOST}/scene", Deadline(5, "")) as file:
            assert bytes(file.content[:]) == SCENE
        assert network.reached == [(PUBLIC, 443)]
        assert self.named == [HOST]
        assert Host.seen[0][1]["host"] == HOST

    def test_another_name(
        self, secure_port: int, trusting: Callable[..., Fetcher], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, secure_port, a_example_com=[[PUBLIC]])
        with pytest.raises(RasterError, match="cannot be reached"):
            trusting(PLAIN, network).fetch("https://a.example.com/scene", Deadline(5, ""))
        assert not Host.seen

    def test_a_certificate_that_nobody_knows(
        self, secure_port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, secure_port, tiles_example_org=[[PUBLIC]])
        refusal(RasterError, f"https://{HOST}/scene", PLAIN, resolver=network.resolve)
        assert not Host.seen

    def test_a_host_that_does_not_encrypt(
        self, port: int, trusting: Callable[..., Fetcher], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, port, tiles_example_org=[[PUBLIC]])
        with pytest.raises(RasterError, match="cannot be reached"):
            trusting(PLAIN, network).fetch(f"https://{HOST}/scene", Deadline(5, ""))


async def test_a_slow_host_does_not_hold_up_the_event_loop(port: int) -> None:
    """Nor requests that fetch nothing, however many slow ones there are."""
    access = Access(private(port))
    request = RasterRequest(data=f"http://127.0.0.1:{port}/drips/body", data_format="url")
    deadline = Deadline(1, "Fetching")
    work = asyncio.gather(
        *(asyncio.to_thread(access.sources, request, 1, deadline) for _ in range(4)),
        return_exceptions=True,
    )
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert all(isinstance(one, LimitError) for one in await work)
    assert longest < 0.1
