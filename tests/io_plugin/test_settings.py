"""What whoever starts a server may say, and what stops the start."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from vllm_raster_io.errors import SettingsError
from vllm_raster_io.limits import Limits, LimitsInForce
from vllm_raster_io.paths import Root
from vllm_raster_io.settings import Settings
from vllm_raster_io.urls import HostRule


def load(**variables: str) -> Settings:
    return Settings.load({f"VLLM_RASTER_{name}": value for name, value in variables.items()})


def refusal(environ: Mapping[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ)
    return str(caught.value)


def config(folder: Path, text: str) -> Path:
    path = folder / "raster.toml"
    path.write_text(text)
    return path


class TestDefaults:
    def test_all_is_off(self) -> None:
        settings = Settings.load({})
        assert settings == Settings()
        assert settings.read_roots == settings.write_roots == ()
        assert settings.allowed_hosts == settings.allowed_private_hosts == ()
        assert not settings.allow_http
        assert not settings.fetches
        assert settings.limits == Limits()

    def test_nothing_can_be_changed(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            Settings().allow_http = True  # type: ignore[misc]

    def test_of_this_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VLLM_RASTER_MAX_BANDS", "7")
        assert Settings.load().limits.bands == 7


class TestVariables:
    def test_each(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        settings = load(
            READ_ROOTS=f"{tmp_path}/a, {tmp_path}/b",
            WRITE_ROOTS=f"{tmp_path}/b",
            ALLOWED_HOSTS="tiles.example.org,*.example.com:8443, 8.8.8.8",
            ALLOWED_PRIVATE_HOSTS="127.0.0.1:8250,[::1]:80",
            ALLOW_HTTP="true",
            MAX_PIXELS="100",
            MAX_REDIRECTS="0",
        )
        assert [root.given for root in settings.read_roots] == [f"{tmp_path}/a", f"{tmp_path}/b"]
        assert settings.write_roots == (Root(f"{tmp_path}/b", f"{tmp_path}/b"),)
        assert settings.allowed_hosts == (
            HostRule("tiles.example.org"),
            HostRule("example.com", below=True, port=8443),
            HostRule("8.8.8.8"),
        )
        assert settings.allowed_private_hosts == (
            HostRule("127.0.0.1", port=8250),
            HostRule("::1", port=80),
        )
        assert settings.allow_http
        assert settings.fetches
        assert settings.limits == Limits(pixels=100, redirects=0)

    @pytest.mark.parametrize("name", Limits.model_fields)
    def test_every_limit(self, name: str) -> None:
        settings = Settings.load({f"VLLM_RASTER_MAX_{name.upper()}": "3"})
        assert settings.limits == Limits(**{name: 3})

    @pytest.mark.parametrize(
        ("text", "on"), [("1", True), ("TRUE", True), ("yes", True), ("0", False), ("no", False)]
    )
    def test_truths(self, text: str, on: bool) -> None:
        assert load(ALLOW_HTTP=text).allow_http is on

    @pytest.mark.parametrize("text", ["", " ", ",", " , "])
    def test_an_empty_list_is_off(self, text: str) -> None:
        assert load(READ_ROOTS=text, ALLOWED_HOSTS=text) == Settings()

    def test_a_root_that_is_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        (root,) = load(READ_ROOTS=f"{tmp_path}/link/").read_roots
        assert root == Root(f"{tmp_path}/link", f"{tmp_path}/real")

    def test_others_are_left_alone(self) -> None:
        others = {
            "VLLM_RASTER_ENGINE": "vllm",
            "VLLM_RASTER_SOMETHING_ELSE": "1",
            "VLLM_USE_V1": "1",
            "READ_ROOTS": "nowhere",
        }
        assert Settings.load(others) == Settings()


class TestFile:
    def test_each(self, tmp_path: Path) -> None:
        path = config(
            tmp_path,
            f"""
            read_roots = ["{tmp_path}"]
            allowed_hosts = ["example.org"]
            allow_http = true
            max_bands = 13
            """,
        )
        settings = load(CONFIG=str(path))
        assert settings.read_roots == (Root(str(tmp_path), str(tmp_path)),)
        assert settings.allowed_hosts == (HostRule("example.org"),)
        assert settings.allow_http
        assert settings.limits == Limits(bands=13)

    def test_variables_win(self, tmp_path: Path) -> None:
        path = config(tmp_path, 'max_bands = 13\nmax_pixels = 5\nallowed_hosts = ["example.org"]')
        settings = load(CONFIG=str(path), MAX_BANDS="4", ALLOWED_HOSTS="")
        assert settings.limits == Limits(bands=4, pixels=5)
        assert settings.allowed_hosts == ()

    def test_no_file_is_named(self) -> None:
        assert load(CONFIG="") == Settings()

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("max_band = 3", "did you mean max_bands?"),
            ("reed_roots = []", "did you mean read_roots?"),
            ("read-roots = []", "did you mean read_roots?"),
            ("MAX_BANDS = 3", "did you mean max_bands?"),
            ("xyz = 3", "xyz is no setting"),
            ("limits = {}", "limits is no setting"),
            ("[limits]\nbands = 3", "limits is no setting"),
            ("max_bands = ", "cannot be read"),
            ("max_bands = 3\nmax_bands = 4", "cannot be read"),
        ],
    )
    def test_wrong_keys(self, tmp_path: Path, text: str, told: str) -> None:
        path = config(tmp_path, text)
        message = refusal({"VLLM_RASTER_CONFIG": str(path)})
        assert told in message
        assert str(path) in message

    def test_it_is_not_there(self, tmp_path: Path) -> None:
        for path in (tmp_path / "none.toml", tmp_path):
            message = refusal({"VLLM_RASTER_CONFIG": str(path)})
            assert message.startswith(f"VLLM_RASTER_CONFIG='{path}' should name a TOML file")

    def test_it_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "raster.toml"
        path.write_bytes(b"\xff\xfe\0")
        assert "cannot be read" in refusal({"VLLM_RASTER_CONFIG": str(path)})

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("max_bands = 0", "max_bands=0: input should be greater than or equal to 1"),
            ('max_bands = "3"', "max_bands='3': input should be a valid integer"),
            ("max_bands = 1.5", "valid integer"),
            ("max_bands = true", "valid integer"),
            ('allow_http = "true"', "allow_http='true': input should be a valid boolean"),
            ('read_roots = "/tmp"', "read_roots='/tmp': input should be a valid tuple"),
            ("read_roots = [3]", "read_roots=3: should be a text"),
            ('allowed_hosts = [["a"]]', "should be a text"),
        ],
    )
    def test_wrong_values(self, tmp_path: Path, text: str, told: str) -> None:
        path = config(tmp_path, text)
        message = refusal({"VLLM_RASTER_CONFIG": str(path)})
        assert told in message
        assert f"{path}: {text.split()[0]}=" in message


class TestWrongVariables:
    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("MAX_PIXELS", "-3", "=-3: input should be greater than or equal to 1"),
            ("MAX_PIXELS", "0", "=0: input should be greater than or equal to 1"),
            ("MAX_REDIRECTS", "-1", "=-1: input should be greater than or equal to 0"),
            ("MAX_PIXELS", "many", "='many': input should be a valid integer"),
            ("MAX_PIXELS", "1e6", "='1e6': input should be a valid integer"),
            ("MAX_PIXELS", "", "='': input should be a valid integer"),
            ("MAX_PIXELS", "--3", "='--3': input should be a valid integer"),
            ("ALLOW_HTTP", "maybe", "='maybe': input should be a valid boolean"),
            ("READ_ROOTS", "scenes", "='scenes': should be an absolute path"),
            ("READ_ROOTS", "./scenes", "should be an absolute path"),
            ("READ_ROOTS", "~/scenes", "should be an absolute path"),
            ("READ_ROOTS", "/nowhere/at/all", "should be a folder that exists"),
            ("READ_ROOTS", "/tmp:/var", "between several stands a comma"),
            ("READ_ROOTS", "/etc/passwd", "should be a folder, and is none"),
            ("READ_ROOTS", "/", "not the whole system's"),
            ("WRITE_ROOTS", "/..", "not the whole system's"),
            ("READ_ROOTS", "/proc/self", "not the whole system's"),
            ("READ_ROOTS", "/sys", "not the whole system's"),
            ("READ_ROOTS", "/dev", "not the whole system's"),
            ("ALLOWED_HOSTS", "*", "should be a host"),
            ("ALLOWED_HOSTS", "*.org", "at least two names"),
            ("ALLOWED_HOSTS", "*.10.0.0.1", "at least two names"),
            ("ALLOWED_HOSTS", "tiles.*.org", "should be a host"),
            ("ALLOWED_HOSTS", "https://example.org", "should be a host"),
            ("ALLOWED_HOSTS", "example.org/path", "should be a host"),
            ("ALLOWED_HOSTS", "me@example.org", "should be a host"),
            ("ALLOWED_HOSTS", "example.org:", "should be a host"),
            ("ALLOWED_HOSTS", "example.org:0", "a port from 1 to 65535"),
            ("ALLOWED_HOSTS", "example.org:65536", "a port from 1 to 65535"),
            ("ALLOWED_HOSTS", "2130706433", "an address in a form that is not the usual one"),
            ("ALLOWED_HOSTS", "0x7f.1", "an address in a form that is not the usual one"),
            ("ALLOWED_HOSTS", "0177.0.0.1", "an address in a form that is not the usual one"),
            ("ALLOWED_HOSTS", "bücher.example", "in ASCII letters"),
            ("ALLOWED_HOSTS", "a..b", "in ASCII letters"),
            ("ALLOWED_PRIVATE_HOSTS", "*.example.org", "should name each host"),
        ],
    )
    def test_values(self, name: str, value: str, told: str) -> None:
        message = refusal({f"VLLM_RASTER_{name}": value})
        assert told in message
        assert f"VLLM_RASTER_{name}" in message

    def test_all_are_told_at_once(self) -> None:
        message = refusal({"VLLM_RASTER_MAX_BANDS": "0", "VLLM_RASTER_READ_ROOTS": "a,b"})
        assert message.count("VLLM_RASTER_READ_ROOTS=") == 2
        assert "VLLM_RASTER_MAX_BANDS=0" in message

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everywhere")
    def test_a_root_without_the_right(self, tmp_path: Path) -> None:
        tmp_path.chmod(0)
        try:
            for name, told in (("READ_ROOTS", "read"), ("WRITE_ROOTS", "written to")):
                message = refusal({f"VLLM_RASTER_{name}": str(tmp_path)})
                assert message.endswith(f"should be a folder that can be {told}")
        finally:
            tmp_path.chmod(0o700)

    def test_a_root_that_cannot_be_written_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
        message = refusal({"VLLM_RASTER_WRITE_ROOTS": str(tmp_path)})
        assert f"VLLM_RASTER_WRITE_ROOTS: '{tmp_path}' should be a folder that can be w" in message

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("VLLM_RASTER_READ_ROOT", "VLLM_RASTER_READ_ROOTS"),
            ("VLLM_RASTER_READROOTS", "VLLM_RASTER_READ_ROOTS"),
            ("VLLM_RASTER_read_roots", "VLLM_RASTER_READ_ROOTS"),
            ("vllm_raster_READ_ROOTS", "VLLM_RASTER_READ_ROOTS"),
            ("VLLM_RASTER_WRITE_PATHS", "VLLM_RASTER_WRITE_ROOTS"),
            ("VLLM_RASTER_ALLOWED_HOST", "VLLM_RASTER_ALLOWED_HOSTS"),
            ("VLLM_RASTER_ALLOW_HTTPS", "VLLM_RASTER_ALLOW_HTTP"),
            ("VLLM_RASTER_MAX_PIXEL", "VLLM_RASTER_MAX_PIXELS"),
            ("VLLM_RASTER_MAX_WINDOW_COUNT", "VLLM_RASTER_MAX_WINDOWS"),
        ],
    )
    def test_misspelt(self, name: str, meant: str) -> None:
        message = refusal({name: "1"})
        assert message.startswith(f"{name} is no setting")
        assert f"did you mean {meant}?" in message

    def test_no_folder_for_what_is_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none() -> str:
            raise FileNotFoundError(2, "No usable temporary directory")

        monkeypatch.setattr("tempfile.gettempdir", none)
        assert Settings.load({}) == Settings()
        assert "set TMPDIR" in refusal({"VLLM_RASTER_ALLOWED_HOSTS": "example.org"})


def test_each_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    for name in Settings.model_fields.keys() - {"limits"}:
        assert f"| `{name}`, `VLLM_RASTER_{name.upper()}` |" in text
    units = {"GiB": 2**30, "MiB": 2**20}
    for name, field in Limits.model_fields.items():
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `max_{name}` |"))
        number, _, unit = row.split("|")[2].strip().partition(" ")
        assert int(number.replace(",", "")) * units.get(unit, 1) == field.default


def test_limits_are_put_in_force() -> None:
    limits = LimitsInForce()
    limits.check("bands", 1024)
    limits.set(Limits(bands=3))
    assert limits.bands == 3
    limits.check("bands", 3)
    with pytest.raises(ValueError, match="4 bands, and at most 3"):
        limits.check("bands", 4)
