"""MNIST and Fashion-MNIST: found on disk or fetched once over HTTPS, and always verified."""

import gzip
import hashlib
import http.client
import io
import os
import struct
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataFileError
from protopinv.files import is_file, replacing


@dataclass(frozen=True)
class ImageSet:
    """Four IDX files by the SHA-256 of their content, and of the packed files that mirrors have."""

    name: str
    sha256: dict[str, str]
    packed_sha256: dict[str, str]
    mirrors: tuple[str, ...]
    system_folder: Path | None = None


# No file of a set is larger, packed or not.
MOST_BYTES = 2**26
TIMEOUT_SECONDS = 20
BLOCK_BYTES = 2**16
STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _digests(*sha256: str) -> dict[str, str]:
    return dict(zip(STEMS, sha256, strict=True))


MNIST = ImageSet(
    name="mnist",
    sha256=_digests(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    packed_sha256=_digests(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)
FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    sha256=_digests(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    packed_sha256=_digests(
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    system_folder=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
)
IMAGES = {images.name: images for images in (MNIST, FASHION_MNIST)}


def load_images(
    images: ImageSet, split: Literal["train", "test"]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images of bytes and labels 0 to 9, in the official split."""
    prefix = "train" if split == "train" else "t10k"
    pixels, labels = (
        parse_idx(_content(images, f"{prefix}-{part}-ubyte"))
        for part in ("images-idx3", "labels-idx1")
    )
    return pixels, labels


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """The array in a file of the IDX format: 0, 0, 8 for bytes, the sizes, then the bytes.

    Nothing is checked here: the digest of the file was.
    """
    n_dims = content[3]
    start = 4 + 4 * n_dims
    shape = struct.unpack(f">{n_dims}I", content[4:start])
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def user_cache() -> Path:
    """Where downloads go: the platform's cache folder for this user."""
    cache = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "protopinv"


def places(images: ImageSet) -> list[Path]:
    """Folders that are looked into, in this order."""
    chosen = os.environ.get("PROTOPINV_DATA")
    folders = [Path(chosen)] if chosen else []
    folders = [folder / images.name for folder in (*folders, user_cache())]
    return folders if images.system_folder is None else [*folders, images.system_folder]


def folder_of(images: ImageSet) -> Path | None:
    """Where all files of a set are; None if some would have to be fetched."""
    for folder in places(images):
        if all(_path_in(folder, stem) for stem in STEMS):
            return folder
    return None


def _path_in(folder: Path, stem: str) -> Path | None:
    """The file of this name in a folder, packed or not."""
    return next(filter(is_file, (folder / stem, folder / f"{stem}.gz")), None)


def _content(images: ImageSet, stem: str) -> bytes:
    """The verified, uncompressed content of a file."""
    path = next(filter(None, (_path_in(folder, stem) for folder in places(images))), None)
    if path is None:
        return _fetched(images, stem)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataFileError(
            f"A data file must be readable. {path} is not ({error.strerror}). Change its "
            "permissions."
        ) from error
    return _verified(content, images.sha256[stem], path)


def _fetched(images: ImageSet, stem: str) -> bytes:
    """Download into the cache from the first mirror that gives the right content."""
    target = user_cache() / images.name / f"{stem}.gz"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            f"Downloads need a cache folder. {target.parent} cannot be made ({error}). Set "
            f"PROTOPINV_DATA to a folder that holds {images.name}/."
        ) from error
    failures = []
    for mirror in images.mirrors:
        try:
            packed = _downloaded(f"{mirror}{stem}.gz", images.packed_sha256[stem])
            content = _verified(packed, images.sha256[stem], mirror)
        except DataFileError as error:
            failures.append(str(error))
            continue
        with replacing(target) as temporary:
            temporary.write_bytes(packed)
        return content
    raise DataFileError(
        f"{images.name} must be on disk or downloadable. It is in none of "
        f"{', '.join(map(str, places(images)))}, and no mirror gave {stem}.gz: "
        f"{' '.join(failures)} Put the files there, or set PROTOPINV_DATA to the folder that holds "
        f"{images.name}/."
    )


def _downloaded(url: str, sha256: str) -> bytes:
    """The body at an address, with a progress bar; DataFileError for any but what was expected."""
    from rich.console import Console
    from rich.progress import wrap_file

    opener = urllib.request.OpenerDirector()
    # HTTPS and nothing else, wherever an answer sends us
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"User-Agent": "protopinv"})  # noqa: S310
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            label = f"downloading {url.rpartition('/')[2]}"
            console = Console(stderr=True)
            with wrap_file(response, total, description=label, console=console) as reader:
                blocks = iter(lambda: reader.read(BLOCK_BYTES), b"")
                body = b"".join(islice(blocks, MOST_BYTES // BLOCK_BYTES + 1))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise DataFileError(f"{url} must answer over HTTPS. It did not ({error}).") from error
    if len(body) > MOST_BYTES:
        raise DataFileError(f"{url} must send at most {MOST_BYTES:,} bytes. It sends more.")
    digest = hashlib.sha256(body).hexdigest()
    if digest != sha256:
        raise DataFileError(
            f"{url} must send what has the SHA-256 {sha256[:12]}.... It sent {digest[:12]}...."
        )
    return body


def _verified(raw: bytes, sha256: str, origin: Path | str) -> bytes:
    """Unpack if it is packed, and compare with the known digest; too much is not unpacked."""
    try:
        content = raw
        if raw[:2] == b"\x1f\x8b":
            content = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DataFileError(
            f"A packed file must be whole. {origin} is damaged ({error}). Delete it and try again."
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise DataFileError(
            f"A data file must have its known SHA-256, {sha256[:12]}.... {origin} has "
            f"{digest[:12]}.... Delete it and try again."
        )
    return content
