"""IDX files: parsed, found in their places, fetched from a real server, always verified."""

import gzip
import hashlib
import http.server
import os
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from protopinv.data import NAMED, load_data
from protopinv.data.images import (
    FASHION_MNIST,
    IMAGES,
    MNIST,
    MOST_BYTES,
    STEMS,
    ImageSet,
    load_images,
    parse_idx,
    user_cache,
)
from protopinv.errors import DataFileError

PIXELS = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([2, 0, 1], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


CONTENT = {stem: idx(PIXELS if "images" in stem else LABELS) for stem in STEMS}
PACKED = {stem: gzip.compress(content, mtime=0) for stem, content in CONTENT.items()}
DIGESTS = {stem: hashlib.sha256(content).hexdigest() for stem, content in CONTENT.items()}
PACKED_DIGESTS = {stem: hashlib.sha256(content).hexdigest() for stem, content in PACKED.items()}
# Signed by itself, for 127.0.0.1; nothing but these tests trusts it.
CERTIFICATE = Path(__file__).parent / "localhost.pem"


def write_set(folder: Path, *, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in CONTENT.items():
        if packed:
            (folder / f"{stem}.gz").write_bytes(PACKED[stem])
        else:
            (folder / stem).write_bytes(content)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; what is below /plain/ it sends elsewhere, without encryption."""

    def do_GET(self) -> None:
        if not self.path.startswith("/plain/"):
            super().do_GET()
            return
        self.send_response(302)
        self.send_header("Location", f"http://{self.headers['Host']}/{Path(self.path).name}")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A real HTTPS server on this machine, and the folder it serves."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        running.socket = context.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{running.server_port}/", folder
        running.shutdown()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PROTOPINV_DATA", raising=False)
    return user_cache() / "tiny"


def tiny(*mirrors: str, system_folder: Path | None = None) -> ImageSet:
    return ImageSet("tiny", DIGESTS, PACKED_DIGESTS, mirrors, system_folder)


def test_idx_files_parse_to_the_array_they_hold() -> None:
    np.testing.assert_array_equal(parse_idx(idx(PIXELS)), PIXELS)
    np.testing.assert_array_equal(parse_idx(idx(LABELS)), LABELS)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("split", ["train", "test"])
def test_files_are_found_in_the_folder_of_the_variable(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, split: str
) -> None:
    write_set(tmp_path / "mine" / "tiny", packed=packed)
    monkeypatch.setenv("PROTOPINV_DATA", str(tmp_path / "mine"))
    images, labels = load_images(tiny(), split)
    np.testing.assert_array_equal(images, PIXELS)
    assert images.dtype == np.uint8
    assert labels.tolist() == [2, 0, 1]


def test_files_are_found_in_the_cache_and_the_system_folder(tmp_path: Path, cache: Path) -> None:
    write_set(cache, packed=True)
    assert len(load_images(tiny(), "train")[0]) == 3
    for path in cache.iterdir():
        path.unlink()
    write_set(tmp_path / "system", packed=True)
    assert len(load_images(tiny(system_folder=tmp_path / "system"), "train")[0]) == 3


def test_a_download_lands_in_the_cache_and_is_not_repeated(
    server: tuple[str, Path], cache: Path
) -> None:
    address, folder = server
    write_set(folder, packed=True)
    assert len(load_images(tiny(address), "train")[0]) == 3
    assert sorted(path.name for path in cache.iterdir()) == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
    ]
    for path in folder.iterdir():
        path.unlink()
    assert len(load_images(tiny(address), "train")[0]) == 3


def test_a_bad_mirror_is_passed_over(server: tuple[str, Path], cache: Path) -> None:
    address, folder = server
    write_set(folder, packed=True)
    assert len(load_images(tiny(address + "nowhere/", address), "train")[0]) == 3


@pytest.mark.parametrize("fault", ["missing", "wrong", "cut"])
def test_nothing_bad_is_kept(server: tuple[str, Path], cache: Path, fault: str) -> None:
    address, folder = server
    if fault != "missing":
        bad = gzip.compress(b"something else") if fault == "wrong" else PACKED[STEMS[0]][:-9]
        (folder / f"{STEMS[0]}.gz").write_bytes(bad)
    with pytest.raises(DataFileError, match="tiny must be on disk or downloadable") as failure:
        load_images(tiny(address), "train")
    assert "PROTOPINV_DATA" in str(failure.value)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("place", ["file:///tmp/", "http://127.0.0.1:1/", "ftp://127.0.0.1/"])
def test_a_download_needs_https(cache: Path, place: str) -> None:
    with pytest.raises(DataFileError, match=r"must answer over HTTPS.*unknown url type"):
        load_images(tiny(place), "train")


def test_a_download_that_is_sent_elsewhere_without_encryption_ends(
    server: tuple[str, Path], cache: Path
) -> None:
    address, folder = server
    write_set(folder, packed=True)
    with pytest.raises(DataFileError, match=r"must answer over HTTPS.*unknown url type: http"):
        load_images(tiny(f"{address}plain/"), "train")
    assert list(cache.iterdir()) == []


def test_mirrors_of_public_sets_are_encrypted() -> None:
    assert all(
        url.startswith("https://") for each in (MNIST, FASHION_MNIST) for url in each.mirrors
    )


def test_a_body_that_is_too_long_is_not_read_to_its_end(
    server: tuple[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    write_set(folder, packed=True)
    monkeypatch.setattr("protopinv.data.images.MOST_BYTES", len(PACKED[STEMS[0]]) - 1)
    with pytest.raises(DataFileError, match=r"must send at most .* bytes. It sends more"):
        load_images(tiny(address), "train")


def test_what_is_fetched_is_verified_before_it_is_unpacked(
    server: tuple[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    (folder / f"{STEMS[0]}.gz").write_bytes(gzip.compress(bytes(10**6)))
    unpacked = []
    monkeypatch.setattr(gzip, "GzipFile", unpacked.append)
    monkeypatch.setattr(gzip, "decompress", unpacked.append)
    with pytest.raises(DataFileError, match="must send what has the SHA-256"):
        load_images(tiny(address), "train")
    assert unpacked == []


def test_a_packed_file_on_disk_is_unpacked_up_to_what_a_set_may_hold(cache: Path) -> None:
    write_set(cache, packed=True)
    (cache / f"{STEMS[0]}.gz").write_bytes(gzip.compress(bytes(2 * MOST_BYTES), 1))
    tracemalloc.start()
    with pytest.raises(DataFileError, match="must have its known SHA-256"):
        load_images(tiny(), "train")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.9 * MOST_BYTES


def test_a_damaged_file_on_disk_is_named(cache: Path) -> None:
    write_set(cache, packed=False)
    (cache / STEMS[0]).write_bytes(CONTENT[STEMS[0]][:-1] + b"!")
    with pytest.raises(DataFileError, match=r"known SHA-256.*train-images.*Delete it"):
        load_images(tiny(), "train")


HERE = os.environ.get("PROTOPINV_DATA")


@pytest.mark.skipif(not HERE, reason="needs PROTOPINV_DATA: a folder with the public image sets")
@pytest.mark.parametrize("images", [MNIST, FASHION_MNIST], ids=lambda images: images.name)
def test_the_public_sets_have_their_known_digests(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    offline = replace(images, mirrors=(), system_folder=None)
    for split, n in (("train", 60_000), ("test", 10_000)):
        pixels, labels = load_images(offline, split)
        assert pixels.shape == (n, 28, 28)
        assert np.bincount(labels).min() > 0.08 * n


def test_every_set_of_images_has_a_name() -> None:
    assert list(NAMED) == ["digits", *IMAGES]


def test_digits_split_without_overlap() -> None:
    train, test = load_data("digits", split="train"), load_data("digits", split="test")
    assert len(train.X) + len(test.X) == 1797
    assert len(test.X) == 450
    assert np.bincount(test.y).min() > 30
