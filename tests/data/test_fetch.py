"""Files from the network, from a server on this machine: once, whole, and the right ones."""

import hashlib
import http.server
import io
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from support.runs import partrain

from partrain.data import AnyDataset, DataSection, load, read_spec
from partrain.data.fetch import fetch, local_path, missing_urls
from partrain.display.display import transfers
from partrain.errors import CannotCreate, InputMissing
from partrain.job.load import problems

TEXT = b"To be, or not to be, that is the question.\n" * 200
DIGEST = hashlib.sha256(TEXT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """A server of one file that records its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []
        self.ranges, self.breaks_off = True, False
        self.partial_whole = False
        """Answer each range with the whole file, marked as partial content."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/some/hamlet.txt#sha256={DIGEST}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if self.path == "/round/and/round":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/noise":
            self.wfile.write(b"\0no\x1b[2Jhttp\n\n")
            return
        if self.path != "/some/hamlet.txt":
            self.send_error(404)
            return
        if start >= len(TEXT):
            self.send_error(416)
            return
        self.send_response(206 if start or (wanted and self.server.partial_whole) else 200)
        if start or self.server.partial_whole:
            self.send_header("Content-Range", f"bytes {start}-{len(TEXT) - 1}/{len(TEXT)}")
        self.send_header("Content-Length", str(len(TEXT) - start))
        self.end_headers()
        self.wfile.write(TEXT[start : len(TEXT) // 2 if self.server.breaks_off else None])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARTRAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def text(url: str) -> DataSection:
    section: DataSection = TypeAdapter(AnyDataset).validate_python({"kind": "text", "path": url, "length": 10})
    return section


def test_it_is_fetched_once(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = text(server.url)
    assert read_spec(section, tmp_path) is None
    assert missing_urls(section) == {"path": server.url}
    assert not server.asked
    data = load(section, tmp_path)
    assert load(section, tmp_path).fingerprint == data.fingerprint
    assert server.asked == [None]
    assert capsys.readouterr().err == f"partrain: fetching {server.url.partition('#')[0]} ({len(TEXT):,} bytes)\n"
    known = read_spec(section, tmp_path)
    assert known is not None
    assert known.items == len(data.inputs)
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == ["hamlet.txt"]


def test_progress_is_reported_to_the_end(server: Server) -> None:
    told: list[tuple[int, int | None]] = []
    assert fetch(text(server.url), lambda url, done, total: told.append((done, total))) == [local_path(server.url, Path())]
    assert (told[0], told[-1]) == ((0, len(TEXT)), (len(TEXT), len(TEXT)))


def test_what_broke_off_is_continued(server: Server, cache: Path) -> None:
    server.breaks_off = True
    with pytest.raises(
        InputMissing, match=rf"ended after {len(TEXT) // 2:,} of {len(TEXT):,} bytes; try again, or put the file there"
    ):
        fetch(text(server.url))
    server.breaks_off = False
    (path,) = fetch(text(server.url))
    assert path.read_bytes() == TEXT
    assert server.asked == [None, f"bytes={len(TEXT) // 2}-"]


@pytest.mark.parametrize("partial_whole", [False, True])
def test_a_server_that_cannot_continue_begins_again(server: Server, partial_whole: bool) -> None:
    server.breaks_off = True
    with pytest.raises(InputMissing, match="ended after"):
        fetch(text(server.url))
    server.ranges = server.breaks_off = False
    server.partial_whole = partial_whole
    assert fetch(text(server.url))[0].read_bytes() == TEXT


def test_all_that_was_lacking_was_the_new_name(server: Server) -> None:
    """The transfer stopped after the last byte, before the file was renamed."""
    path = local_path(server.url, Path())
    path.parent.mkdir(parents=True)
    path.with_name("hamlet.txt.part").write_bytes(TEXT)
    assert fetch(text(server.url)) == [path]
    assert path.read_bytes() == TEXT


def test_too_much_of_something_else_is_thrown_away(server: Server) -> None:
    path = local_path(server.url, Path())
    path.parent.mkdir(parents=True)
    path.with_name("hamlet.txt.part").write_bytes(b"x" * 2 * len(TEXT))
    assert fetch(text(server.url))[0].read_bytes() == TEXT


def test_another_content_is_refused(server: Server) -> None:
    wrong = server.url.replace(DIGEST, "0" * 64)
    for _ in range(2):  # what was refused is not continued
        with pytest.raises(InputMissing, match=rf"hamlet.txt: its SHA-256 is {DIGEST}, not the one the job gives \(0{{64}}\)$"):
            fetch(text(wrong))
    assert not local_path(wrong, Path()).exists()
    assert server.asked == [None, None]


def test_a_missing_file_says_where_to_put_it(server: Server) -> None:
    url = server.url.replace("hamlet", "macbeth")
    with pytest.raises(
        InputMissing, match=rf"the server says 404 Not Found; look at the URL, or .* by hand: {local_path(url, Path())}$"
    ):
        fetch(text(url))


@pytest.mark.parametrize(
    ("path", "said"), [("round/and/round", "infinite loop. The last 30x error"), ("noise", "no [2Jhttp; try")]
)
def test_whatever_a_server_says_is_one_line(server: Server, path: str, said: str) -> None:
    with pytest.raises(InputMissing) as caught:
        fetch(text(server.url.replace("some/hamlet.txt", path)))
    assert said in caught.value.message
    assert caught.value.message.isprintable()


def test_no_server(server: Server) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as other:
        port = other.server_address[1]
    url = f"http://127.0.0.1:{port}/hamlet.txt#sha256={DIGEST}"
    with pytest.raises(
        InputMissing, match=rf"cannot be fetched: Connection refused; try again, or put .*: {local_path(url, Path())}$"
    ):
        fetch(text(url))


def test_a_file_put_there_by_hand_is_checked(server: Server, tmp_path: Path) -> None:
    path = local_path(server.url, Path())
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    assert fetch(text(server.url)) == []
    path.write_bytes(TEXT[:-1])
    with pytest.raises(InputMissing, match=rf"^{path}: its SHA-256 is .*: delete it"):
        load(text(server.url), tmp_path)
    assert not server.asked


def test_a_cache_that_cannot_be_made(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PARTRAIN_CACHE", str(tmp_path / "file"))
    with pytest.raises(CannotCreate, match="Not a directory; PARTRAIN_CACHE names another folder"):
        fetch(text(server.url))


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARTRAIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert local_path(f"https://host/a%20b.csv#sha256={DIGEST}", Path()) == Path(f"/somewhere/partrain/{DIGEST}/a b.csv")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert local_path(f"https://host/#sha256={DIGEST}", Path()) == Path(f"/home/me/.cache/partrain/{DIGEST}/file")


@pytest.mark.parametrize("fragment", ["", "#sha256=12", "#md5=" + "0" * 64])
def test_a_url_needs_its_digest(fragment: str) -> None:
    with pytest.raises(ValidationError, match="a file from the network needs its SHA-256"):
        text(f"https://host/hamlet.txt{fragment}")


def test_a_folder_cannot_be_fetched() -> None:
    with pytest.raises(ValidationError, match="only single files can be fetched"):
        TypeAdapter(AnyDataset).validate_python({"kind": "images", "path": f"https://host/x#sha256={DIGEST}", "size": [8, 8]})


def test_validation_fetches_nothing_but_the_command_does(server: Server, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        f"""name = "x"
model = {{name = "mlp"}}
dataset = {{kind = "idx", inputs = "{server.url}", targets = "y.idx"}}
optimizer = {{name = "sgd", lr = 0.1}}
sync = {{rule = "average", iterations = 1}}
workers = [{{count = 1}}]
stop = {{rounds = 1}}
"""
    )
    (problem,) = problems(job)
    assert (problem.severity, problem.line) == ("warning", 3)
    assert problem.message == "has not been fetched yet, so nothing could be checked against it"
    assert not server.asked
    said = partrain("data", "fetch", job)
    assert (said.code, said.out) == (0, f"{local_path(server.url, Path())}\n")
    assert partrain("data", "fetch", job).code == 66  # it is there now, and no IDX file


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_is_left_as_it_was(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    both = TypeAdapter(AnyDataset).validate_python(
        {"kind": "text", "length": 10, "path": [server.url, server.url.replace("hamlet", "macbeth")]}
    )
    with pytest.raises(InputMissing, match="404"), transfers(screen) as report:
        fetch(both, report)
    assert screen.getvalue().startswith("\r\x1b[Kfetching hamlet.txt [")
    assert screen.getvalue().endswith("\r\x1b[K")
    with transfers(io.StringIO()) as report:
        assert report is None


def test_a_disk_that_is_full_is_not_the_networks_fault(server: Server, cache: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(TEXT) // 2, limits[1]))
    try:
        with pytest.raises(CannotCreate) as caught:
            fetch(text(server.url))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    place_ = cache / DIGEST / "hamlet.txt"
    assert caught.value.message == f"{place_}: File too large; PARTRAIN_CACHE names another folder for fetched files"
