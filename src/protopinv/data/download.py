"""Fetch a file over HTTP with a progress bar on stderr."""

import http.client
import urllib.error
import urllib.request

from protopinv.errors import DataFileError

TIMEOUT_SECONDS = 20
BLOCK_BYTES = 2**16


def download(url: str) -> bytes:
    """The whole body, or DataFileError. A body shorter than announced is an error too."""
    from rich.console import Console
    from rich.progress import wrap_file

    if not url.startswith(("http://", "https://")):
        raise DataFileError(f"A download needs an http address. Got {url}.")
    request = urllib.request.Request(url, headers={"User-Agent": "protopinv"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            total = int(response.headers.get("Content-Length") or 0)
            label = f"downloading {url.rpartition('/')[2]}"
            with wrap_file(
                response, total, description=label, console=Console(stderr=True)
            ) as reader:
                body = b"".join(iter(lambda: reader.read(BLOCK_BYTES), b""))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise DataFileError(f"{url} must answer. It did not ({error}).") from error
    if total and len(body) != total:
        raise DataFileError(f"{url} must send {total} bytes. It sent {len(body)}.")
    return body
