"""Files of the server that a client names: those under a root, and nothing else."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_raster_io import paths, uploads
from vllm_raster_io.access import Access
from vllm_raster_io.errors import (
    AccessError,
    LimitError,
    RasterError,
    RasterIOError,
    RequestError,
    ServingError,
)
from vllm_raster_io.jobs import Job
from vllm_raster_io.limits import Limits
from vllm_raster_io.paths import Root, open_file
from vllm_raster_io.rasters import Scene
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.settings import Settings
from vllm_raster_io.targets import Target
from vllm_raster_io.tiling import Window

from ..factories import make_raster
from .networks import PixelNetwork
from .scenes import make_contract

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SECRET = b"what nobody is to read"
SCENE = make_raster(height=20, width=30)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A root, with a scene in it and one in a folder of it."""
    folder = tmp_path / "inside"
    (folder / "deep").mkdir(parents=True)
    (folder / "scene.tif").write_bytes(SCENE)
    (folder / "deep" / "scene.tif").write_bytes(SCENE)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a scene and a secret in it."""
    folder = tmp_path / "inside, but not quite"
    folder.mkdir()
    (folder / "scene.tif").write_bytes(SCENE)
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(inside: Path) -> Root:
    return Root.parse(str(inside))


@pytest.fixture(autouse=True)
def _all_is_closed() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


def descriptors() -> set[str]:
    return {one for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")}


def read(name: str, *roots: Root) -> bytes:
    with open_file(name, roots) as file:
        assert file.head == bytes(file.content[:16])
        return bytes(file.content[:])


def refusal(name: str, *roots: Root) -> str:
    with pytest.raises(RasterIOError) as caught:
        read(name, *roots)
    assert type(caught.value) is AccessError
    return str(caught.value)


class TestReading:
    def test_by_its_path(self, root: Root, inside: Path) -> None:
        for name in ("scene.tif", "deep/scene.tif"):
            assert read(str(inside / name), root) == SCENE
            assert read(name, root) == SCENE

    @pytest.mark.parametrize("form", ["{}//scene.tif", "{}/./scene.tif", "/{}/deep/.//scene.tif"])
    def test_in_another_form(self, root: Root, inside: Path, form: str) -> None:
        assert read(form.format(inside), root) == SCENE

    def test_the_first_root_that_has_it(self, tmp_path: Path, root: Root) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "scene.tif").write_bytes(b"other")
        (other / "more.tif").write_bytes(b"more")
        roots = (root, Root.parse(str(other)))
        assert read("scene.tif", *roots) == SCENE
        assert read("scene.tif", *reversed(roots)) == b"other"
        assert read("more.tif", *roots) == b"more"

    def test_links_within_are_followed(self, root: Root, inside: Path) -> None:
        (inside / "link.tif").symlink_to(inside / "deep" / "scene.tif")
        (inside / "folder").symlink_to("deep")
        assert read("link.tif", root) == SCENE
        assert read(str(inside / "folder" / "scene.tif"), root) == SCENE

    def test_links_to_another_root(self, tmp_path: Path, root: Root, inside: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "scene.tif").write_bytes(SCENE)
        (inside / "link.tif").symlink_to(other / "scene.tif")
        refusal("link.tif", root)
        assert read("link.tif", root, Root.parse(str(other))) == SCENE

    def test_a_root_that_is_a_link(self, tmp_path: Path, inside: Path) -> None:
        (tmp_path / "link").symlink_to(inside)
        root = Root.parse(f"{tmp_path}/link")
        assert read(f"{tmp_path}/link/scene.tif", root) == SCENE
        assert read(f"{inside}/scene.tif", root) == SCENE
        # It stays what it was when the server was started.
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("/etc")
        refusal(f"{tmp_path}/link/passwd", root)
        refusal("passwd", root)


class TestRefusals:
    def test_all_say_the_same(self, root: Root, inside: Path, outside: Path) -> None:
        (inside / "out").symlink_to(outside)
        (inside / "out.tif").symlink_to(outside / "scene.tif")
        (inside / "dead.tif").symlink_to(outside / "none.tif")
        (inside / "loop").symlink_to("loop")
        (inside / "self").symlink_to("/proc/self")
        (inside / "process").symlink_to("/proc/self/root")
        (inside / "zero").symlink_to("/dev/zero")
        messages = {
            refusal(name, root)
            for name in (
                "",
                ".",
                "/",
                "none.tif",
                "deep",
                str(inside),
                f"{inside}/",
                "scene.tif/",
                "scene.tif/more",
                "/etc/passwd",
                "/none",
                f"{outside}/scene.tif",
                f"{outside}/none.tif",
                f"{inside}/../{outside.name}/scene.tif",
                f"../{outside.name}/scene.tif",
                "deep/../scene.tif",
                "..",
                "out/scene.tif",
                "out/none.tif",
                "out.tif",
                "dead.tif",
                "loop",
                "self/environ",
                "process/etc/passwd",
                "zero",
                "/proc/self/environ",
                "/proc/self/root/etc/passwd",
                f"/proc/self/root{inside}/scene.tif",
                f"/proc/self/cwd/../../..{inside}/scene.tif",
                "/dev/zero",
                "/dev/stdin",
                "/vsimem/scene.tif",
                f"/vsicurl/file://{inside}/scene.tif",
                f"file://{inside}/scene.tif",
                f"GTIFF_DIR:1:{inside}/scene.tif",
                "~/scene.tif",
                "$HOME/scene.tif",
                "scene.tif\0",
                f"{inside}/scene.tif\0.png",
                "\0",
                "scene\ud800.tif",
                "n" * 256 + ".tif",
                "deep/" * 1000 + "scene.tif",
                "n" * 100_000,
            )
        }
        (message,) = messages
        assert message.startswith("`data` names no file that may be read")
        assert str(inside) not in message

    def test_what_is_outside_is_not_even_looked_up(
        self, root: Root, outside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def look_up(*_: Any, **__: Any) -> int:
            raise AssertionError("looked up")

        monkeypatch.setattr(os, "open", look_up)
        for name in (f"{outside}/scene.tif", "/etc/passwd", "../x", f"{root.given}/../x"):
            refusal(name, root)

    def test_pipes_and_sockets_are_not_opened(self, root: Root, inside: Path) -> None:
        # Opening a pipe would wait for a writer for ever.
        os.mkfifo(inside / "pipe.tif")
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(inside / "socket.tif"))
            for name in ("pipe.tif", "socket.tif"):
                refusal(name, root)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_what_the_server_may_not_read(self, root: Root, inside: Path) -> None:
        (inside / "scene.tif").chmod(0)
        assert refusal("scene.tif", root) == refusal("none.tif", root)

    @settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_whatever_is_asked_nothing_outside_is_read(
        self, data: st.DataObject, inside: Path, outside: Path, root: Root
    ) -> None:
        links = {"out": outside, "up": "..", "here": ".", "etc": "/etc", "deeper": "deep"}
        for link, to in links.items():
            if not os.path.lexists(inside / link):
                (inside / link).symlink_to(to)
        steps = [*links, "..", ".", "", "deep", "scene.tif", "secret", "passwd", outside.name]
        start = data.draw(st.sampled_from(["", "/", f"{inside}/", f"{outside}/", "//", "./"]))
        parts = data.draw(st.lists(st.sampled_from([*steps, inside.name]), max_size=6))
        name = start + "/".join(parts)
        try:
            content = read(name, root)
        except AccessError:
            return
        assert content == SCENE
        assert Path(os.path.realpath(inside / name)).is_relative_to(inside)


class TestRaces:
    def test_a_file_that_is_swapped(self, root: Root, inside: Path, outside: Path) -> None:
        """Nothing but what was checked is read, whatever happens in between."""
        name, secret = inside / "swapped.tif", outside / "secret"
        stopped = threading.Event()

        def swap() -> None:
            for i in count():
                if stopped.is_set():
                    return
                other = inside / f".{i}"
                if i % 2:
                    other.symlink_to(secret)
                else:
                    other.write_bytes(SCENE)
                other.replace(name)

        thread = threading.Thread(target=swap)
        thread.start()
        read_times = refused = 0
        try:
            for _ in range(100_000):
                try:
                    assert read(str(name), root) == SCENE
                    read_times += 1
                except AccessError:
                    refused += 1
                if read_times > 300 and refused > 300:
                    break
        finally:
            stopped.set()
            thread.join()
        assert read_times > 300
        assert refused > 300

    def test_a_link_put_there_after_the_check(
        self, root: Root, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        check = paths._lies_within

        def swap_after(hold: int, roots: Any) -> bool:
            lies_within = check(hold, roots)
            (inside / "scene.tif").unlink()
            (inside / "scene.tif").symlink_to(outside / "secret")
            return lies_within

        monkeypatch.setattr(paths, "_lies_within", swap_after)
        assert read("scene.tif", root) == SCENE

    def test_what_gdal_reads_is_what_was_opened(
        self, root: Root, inside: Path, outside: Path
    ) -> None:
        values = np.arange(20 * 30).reshape(1, 20, 30)
        (inside / "scene.tif").write_bytes(make_raster(values=values))
        file = open_file("scene.tif", [root])
        (inside / "scene.tif").unlink()
        (inside / "scene.tif").symlink_to(outside / "scene.tif")
        with Scene(file) as scene:
            pixels, _ = scene.read(Window(0, 0, 20, 30), [0])
        np.testing.assert_array_equal(pixels, values)

    def test_a_file_that_shrinks_while_it_is_read(self, root: Root, inside: Path) -> None:
        with open_file("scene.tif", [root]) as file:
            (inside / "scene.tif").write_bytes(SCENE[:100])
            assert bytes(file.content[:]) == SCENE[:100]
            with pytest.raises(RasterError):
                Scene(file)


class TestScenes:
    """What is read by path is read as if it had been sent."""

    @pytest.mark.parametrize("driver", ["GTiff", "COG", "PNG", "JPEG"])
    def test_the_same_pixels(self, root: Root, inside: Path, driver: str) -> None:
        georeference = {} if driver in ("GTiff", "COG") else {"crs": None}
        content = make_raster(driver=driver, bands=3, dtype="uint8", **georeference)
        (inside / "whatever its name").write_bytes(content)
        whole = Window(0, 0, 32, 48)
        with Scene(uploads.Upload.of(content)) as sent:
            wanted = sent.read(whole, [0, 1, 2])
            place = sent.dataset.crs, sent.dataset.transform
        with Scene(open_file("whatever its name", [root])) as named:
            for array, other in zip(named.read(whole, [0, 1, 2]), wanted, strict=True):
                np.testing.assert_array_equal(array, other)
            assert (named.dataset.crs, named.dataset.transform) == place

    def test_side_cars_are_not_looked_at(self, root: Root, inside: Path) -> None:
        plain = make_raster(bands=1, crs=None)
        (inside / "a.tif").write_bytes(plain)
        (inside / "a.tfw").write_text("10\n0\n0\n-10\n500000\n5000000\n")
        (inside / "a.tif.msk").write_bytes(make_raster(bands=1, values=np.zeros((32, 48))))
        (inside / "a.tif.ovr").write_bytes(make_raster(bands=1, height=16, width=24))
        (inside / "a.tif.aux.xml").write_text(
            "<PAMDataset><PAMRasterBand band='1'><NoDataValue>5</NoDataValue>"
            "<Description>told beside it</Description></PAMRasterBand></PAMDataset>"
        )
        with Scene(open_file("a.tif", [root])) as scene:
            assert scene.dataset.crs is None
            assert scene.dataset.transform.is_identity
            assert scene.descriptions == [None]
            assert scene.dataset.nodata is None
            assert scene.dataset.overviews(1) == []
            _, valid = scene.read(Window(0, 0, 32, 48), [0])
        assert valid.all()

    @pytest.mark.parametrize(
        "content",
        [
            SECRET,
            b"",
            b"root:x:0:0",
            b"<VRTDataset rasterXSize='1' rasterYSize='1'/>",
            b"II*\0" + SECRET,
            b"\x89PNG" + SECRET,
            b"\xff\xd8\xff" + SECRET,
        ],
    )
    def test_what_is_no_raster(self, root: Root, inside: Path, content: bytes) -> None:
        (inside / "a.tif").write_bytes(content)
        with pytest.raises(RasterError) as caught:
            Scene(open_file("a.tif", [root]))
        # The client may not read it otherwise, so nothing of it is told.
        assert "nobody" not in str(caught.value)
        assert "root" not in str(caught.value)
        assert str(inside) not in str(caught.value)

    def test_a_large_one_is_not_read_into_memory(self, root: Root, inside: Path) -> None:
        resource = pytest.importorskip("resource")
        with (inside / "large.tif").open("wb") as file:
            file.write(make_raster(bands=1, height=16, width=16))
            file.truncate(2**31)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Scene(open_file("large.tif", [root])) as scene:
            scene.read(Window(0, 0, 16, 16), [0])
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


class TestWriting:
    @pytest.fixture
    def write(self, root: Root) -> Any:
        def write(name: str | None, content: bytes = b"a map", overwrite: bool = False) -> str:
            target = Target.choose(name, overwrite, [root])
            target.write(content)
            return target.name

        return write

    @pytest.mark.parametrize("form", ["{}/map.tif", "map.tif", "deep/map.TIFF", "{}/deep//map.tif"])
    def test_as_named(self, write: Any, inside: Path, form: str) -> None:
        name = form.format(inside)
        assert write(name) == name
        assert (inside / name).read_bytes() == b"a map"

    @pytest.mark.parametrize("form", ["{}", "{}/", "deep", "deep/", "{}/deep"])
    def test_into_a_folder(self, write: Any, inside: Path, form: str) -> None:
        folder = form.format(inside)
        first, second = write(folder), write(folder)
        assert first != second
        assert first.startswith(folder)
        assert (inside / first).read_bytes() == b"a map"

    def test_without_a_name(self, write: Any, inside: Path) -> None:
        name = write(None)
        assert "/" not in name  # which would tell where the root is
        assert len(name) == 36
        assert (inside / name).read_bytes() == b"a map"

    def test_it_may_be_read_by_the_name_it_was_given(self, write: Any, root: Root) -> None:
        assert read(write(None), root) == read(write("deep"), root) == b"a map"

    def test_its_mode(self, write: Any, inside: Path) -> None:
        mask = os.umask(0o027)
        try:
            write("map.tif")
        finally:
            os.umask(mask)
        assert stat.S_IMODE((inside / "map.tif").stat().st_mode) == 0o640

    def test_through_a_link_within(self, write: Any, inside: Path) -> None:
        (inside / "link").symlink_to("deep")
        assert write("link/map.tif") == "link/map.tif"
        assert (inside / "deep" / "map.tif").read_bytes() == b"a map"

    def test_refusals_all_say_the_same(
        self, write: Any, inside: Path, outside: Path, tmp_path: Path
    ) -> None:
        (inside / "out").symlink_to(outside)
        (inside / "dead").symlink_to(tmp_path / "none")
        (inside / "deep" / "folder.tif").mkdir()
        before = everything(tmp_path)
        messages = set()
        for name in (
            "/",
            "/tmp/map.tif",
            "/none/map.tif",
            f"{outside}/map.tif",
            f"{outside}/",
            f"{outside}",
            f"../{outside.name}/map.tif",
            "deep/../map.tif",
            "..",
            "out/map.tif",
            "out/",
            "out/none/map.tif",
            "dead/map.tif",
            "none/map.tif",
            "none/",
            "scene.tif/map.tif",
            "scene.tif/",
            "map",
            "map.py",
            "map.tif.py",
            ".tif",
            ".map.tif",
            "deep/.bashrc",
            "map.tif\0",
            "map.tif\0.tif",
            "m" * 300 + ".tif",
            "m" * 5000 + ".tif",
            "\ud800.tif",
            "\udc80.tif",
            "deep/\udc80/",
            "new\nline.tif",
            "/dev/null",
            "/dev/map.tif",
            "/proc/self/map.tif",
            "/proc/self/fd/1",
        ):
            with pytest.raises(AccessError) as caught:
                write(name)
            messages.add(str(caught.value))
        (message,) = messages
        assert message.startswith("`out_path` names no place that may be written to")
        assert str(inside) not in message
        assert everything(tmp_path) == before

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_nothing_is_overwritten(self, root: Root, inside: Path, when: str) -> None:
        def choose() -> Target:
            return Target.choose("new.tif", False, [root])

        target = choose() if when == "after" else None
        (inside / "new.tif").write_bytes(b"old")
        with pytest.raises(RequestError, match=r"'new.tif' is there already.*`overwrite`: true"):
            target.write(b"a map") if target else choose()
        assert (inside / "new.tif").read_bytes() == b"old"
        assert not list(inside.glob(".*"))

    def test_a_file_that_comes_at_the_last_moment(
        self, root: Root, inside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = Target.choose("new.tif", False, [root])
        write_draft = Target._write_draft

        def come_between(self: Target, *args: Any) -> None:
            write_draft(self, *args)
            (inside / "new.tif").write_bytes(b"old")

        monkeypatch.setattr(Target, "_write_draft", come_between)
        with pytest.raises(RequestError, match="is there already"):
            target.write(b"a map")
        assert (inside / "new.tif").read_bytes() == b"old"
        assert not list(inside.glob(".*"))

    @pytest.mark.parametrize("link", ["outside/secret", "outside/none", "scene.tif", "none"])
    def test_a_link_is_neither_followed_nor_replaced(
        self, write: Any, inside: Path, outside: Path, link: str
    ) -> None:
        (inside / "map.tif").symlink_to(link.replace("outside", str(outside)))
        with pytest.raises(RequestError):
            write("map.tif")
        with pytest.raises(AccessError):
            write("map.tif", overwrite=True)
        assert (outside / "secret").read_bytes() == SECRET
        assert not (outside / "none").exists()
        assert (inside / "scene.tif").read_bytes() == SCENE
        assert (inside / "map.tif").is_symlink()

    def test_overwriting(self, write: Any, inside: Path) -> None:
        with (inside / "scene.tif").open("rb") as reader:
            write("scene.tif", overwrite=True)
            assert reader.read() == SCENE  # who reads the old one goes on with it
        assert (inside / "scene.tif").read_bytes() == b"a map"
        write("new.tif", overwrite=True)
        assert not list(inside.glob(".*"))

    def test_a_file_system_without_links(
        self, write: Any, inside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: Any, **__: Any) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
        write("map.tif")
        assert (inside / "map.tif").read_bytes() == b"a map"
        with pytest.raises(RequestError, match="is there already"):
            write("map.tif", b"another")
        monkeypatch.setattr(Target, "_check_free", lambda *_: None)  # as if it came this moment
        with pytest.raises(RequestError, match="is there already"):
            write("map.tif", b"another")
        assert (inside / "map.tif").read_bytes() == b"a map"
        assert not list(inside.glob(".*"))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_the_server_may_not_write_to(self, write: Any, inside: Path) -> None:
        (inside / "deep").chmod(0o500)
        with pytest.raises(AccessError):
            write("deep/map.tif")

    @pytest.mark.parametrize("kind", ["folder", "pipe"])
    def test_only_files_are_overwritten(self, write: Any, inside: Path, kind: str) -> None:
        name = inside / "deep" / "map.tif"
        if kind == "folder":
            (name / "map.tif").mkdir(parents=True)
            asked = "deep/map.tif/map.tif"
            assert write(asked, overwrite=True).startswith(asked + "/")
        else:
            os.mkfifo(name)
            with pytest.raises(AccessError):
                write("deep/map.tif", overwrite=True)

    def test_a_folder_that_is_moved_out(self, root: Root, inside: Path, outside: Path) -> None:
        target = Target.choose("deep/map.tif", False, [root])
        (inside / "deep").rename(outside / "deep")
        (inside / "deep").symlink_to(outside / "deep")
        with pytest.raises(AccessError):
            target.write(b"a map")
        assert not (outside / "deep" / "map.tif").exists()

    def test_a_full_disk(self, write: Any, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device", str(inside))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ServingError) as caught:
            write("map.tif")
        assert str(caught.value) == "The map could not be written: No space left on device"
        assert not (inside / "map.tif").exists()
        assert not list(inside.glob(".*"))

    def test_one_of_many_at_once_wins(self, root: Root, inside: Path) -> None:
        targets = [Target.choose("map.tif", False, [root]) for _ in range(20)]
        won = []

        def write(i: int) -> None:
            try:
                targets[i].write(bytes([i]) * 100_000)
                won.append(i)
            except RequestError:
                pass

        threads = [threading.Thread(target=write, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert (inside / "map.tif").read_bytes() == bytes(won) * 100_000


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


class TestRequests:
    def ask(self, settings: Settings, **fields: Any) -> Any:
        contract = make_contract()
        job = Job(RasterRequest.parse(fields), contract, Access(settings))
        try:
            return job.answer([PixelNetwork(contract)(one) for one in job.items()], None)
        finally:
            job.close()

    def test_from_a_file_to_a_file(self, root: Root, inside: Path) -> None:
        allowed = Settings(read_roots=(root,), write_roots=(root,))
        in_body = self.ask(allowed, data="scene.tif", data_format="path")
        assert in_body.data_format == "b64_json"
        answer = self.ask(
            allowed, data=f"{inside}/scene.tif", data_format="path", out_data_format="path"
        )
        assert answer.data_format == "path"
        with Scene(open_file(answer.data, [root])) as scene:
            assert (scene.height, scene.width) == (20, 30)
        wanted = make_contract().output.classes
        assert [one.pixels for one in answer.classes] == [one.pixels for one in in_body.classes]
        assert len(answer.classes) == len(wanted)

    @pytest.mark.parametrize("last", [0, 1])
    def test_of_two_files_there_are_both_or_none(
        self, root: Root, inside: Path, monkeypatch: pytest.MonkeyPatch, last: int
    ) -> None:
        before, write_draft, written = everything(inside), Target._write_draft, count()

        def fill_the_disk(self: Target, *args: Any) -> None:
            if next(written) == last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write_draft(self, *args)

        asked = {"data": "scene.tif", "data_format": "path", "out_data_format": "path"}
        asked |= {"out_path": "two.tif", "confidence": True}
        allowed = Settings(read_roots=(root,), write_roots=(root,))
        with monkeypatch.context() as patched:
            patched.setattr(Target, "_write_draft", fill_the_disk)
            with pytest.raises(ServingError, match="No space left"):
                self.ask(allowed, **asked)
        assert everything(inside) == before
        answer = self.ask(allowed, **asked)
        assert answer.confidence.data == "two_confidence.tif"
        made = {one.name for one in everything(inside) - before}
        assert made == {"two.tif", "two_confidence.tif"}

    def test_each_is_allowed_by_itself(self, root: Root) -> None:
        with pytest.raises(AccessError, match="not set up to write"):
            self.ask(
                Settings(read_roots=(root,)),
                data="scene.tif",
                data_format="path",
                out_data_format="path",
            )
        with pytest.raises(AccessError, match="not set up to read"):
            self.ask(Settings(write_roots=(root,)), data="scene.tif", data_format="path")

    def test_a_wrong_place_is_told_before_anything_is_read(self, root: Root) -> None:
        with pytest.raises(AccessError, match="out_path"):
            self.ask(
                Settings(write_roots=(root,)), data="!", out_data_format="path", out_path="/etc/x"
            )

    @pytest.mark.parametrize("fields", [{"out_path": "map.tif"}, {"overwrite": True}])
    def test_a_place_for_nothing(self, root: Root, fields: dict[str, Any]) -> None:
        with pytest.raises(RequestError, match="leave them out"):
            self.ask(Settings(write_roots=(root,)), data="AAAA", **fields)

    @pytest.mark.parametrize(
        ("kind", "endings"),
        [
            ("geotiff", (".tif", ".TIFF")),
            ("cog", (".tif", ".tiff")),
            ("png", (".png",)),
            ("jpeg", (".jpg", ".jpeg")),
            ("webp", (".webp",)),
            ("npy", (".npy",)),
        ],
    )
    def test_files_end_as_their_format_does(
        self, root: Root, kind: str, endings: tuple[str, ...]
    ) -> None:
        access = Access(Settings(write_roots=(root,)))
        fields: dict[str, Any] = {"data": "", "out_data_format": "path", "format": kind}
        for ending in endings:
            target = access.target(RasterRequest(out_path=f"map{ending}", **fields))
            assert target is not None
            target.write(b"a map")
            assert (Path(root.resolved) / f"map{ending}").read_bytes() == b"a map"
        named = access.target(RasterRequest(**fields))
        assert named is not None
        assert named.name.endswith(endings[0].lower())
        with pytest.raises(AccessError, match="ends as its format does"):
            access.target(RasterRequest(out_path="map.txt", **fields))

    def test_a_file_beside_another(self, root: Root) -> None:
        target = Target.choose("map.v1.tif", False, [root])
        beside = target.beside("_confidence")
        beside.write(b"how sure")
        assert beside.name == "map.v1_confidence.tif"
        assert (Path(root.resolved) / beside.name).read_bytes() == b"how sure"
        with pytest.raises(RequestError, match=r"'map\.v1_confidence\.tif' is there already"):
            target.beside("_confidence")

    def test_a_path_too_long_for_one(self, root: Root) -> None:
        with pytest.raises(AccessError, match="too long"):
            self.ask(
                Settings(read_roots=(root,)), data=uploads.Upload.of(SCENE), data_format="path"
            )

    def test_bytes_are_limited(self, root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vllm_raster_io.access.LIMITS", Limits(bytes=2 * len(SCENE) - 1))
        access = Access(Settings(read_roots=(root,)))
        name = "scene.tif"
        (file,) = access.sources(RasterRequest(data=name, data_format="path"))
        file.close()
        with pytest.raises(LimitError, match="bytes, and at most"):
            access.sources(RasterRequest(data=[name, name], data_format="path"), dates=2)

    def test_files_are_counted_before_they_are_read(
        self, root: Root, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("vllm_raster_io.access.LIMITS", Limits(frames=3))
        access = Access(Settings(read_roots=(root,)))
        with pytest.raises(LimitError, match="4 frames, and at most 3"):
            access.sources(RasterRequest(data=["none"] * 4, data_format="path"), dates=4)
        with pytest.raises(RequestError, match="takes 2 dates"):
            access.sources(RasterRequest(data=["none"] * 3, data_format="path"), dates=2)

    def test_of_several_files_one_is_not_there(self, root: Root) -> None:
        access = Access(Settings(read_roots=(root,)))
        with pytest.raises(AccessError):
            access.sources(RasterRequest(data=["scene.tif", "x"], data_format="path"), dates=2)
