"""Fetch a file over HTTPS with a progress bar on stderr."""

import hashlib
import http.client
import urllib.error
import urllib.request
from typing import IO

from protopinv.errors import DataFileError

TIMEOUT_SECONDS = 20
BLOCK_BYTES = 2**16


def download(url: str, *, sha256: str, most_bytes: int) -> bytes:
    """The whole body, which has this digest; DataFileError for any other, or one that is longer."""
    from rich.console import Console
    from rich.progress import wrap_file

    request = urllib.request.Request(url, headers={"User-Agent": "protopinv"})  # noqa: S310
    try:
        with _opener().open(request, timeout=TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            label = f"downloading {url.rpartition('/')[2]}"
            with wrap_file(
                response, total, description=label, console=Console(stderr=True)
            ) as reader:
                body = _read(reader, most_bytes)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise DataFileError(f"{url} must answer over HTTPS. It did not ({error}).") from error
    if len(body) > most_bytes:
        raise DataFileError(f"{url} must send at most {most_bytes:,} bytes. It sends more.")
    digest = hashlib.sha256(body).hexdigest()
    if digest != sha256:
        raise DataFileError(
            f"{url} must send what has the SHA-256 {sha256[:12]}.... It sent {digest[:12]}...."
        )
    return body


def _opener() -> urllib.request.OpenerDirector:
    """Knows HTTPS and nothing else, wherever an answer sends it."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _read(reader: IO[bytes], most_bytes: int) -> bytes:
    """All there is, or a little more than there may be."""
    blocks, size = [], 0
    while size <= most_bytes and (block := reader.read(BLOCK_BYTES)):
        blocks.append(block)
        size += len(block)
    return b"".join(blocks)
