"""Whether Triton can build here: it compiles a small library in C when a process first uses it."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

# Where triton-windows keeps a compiler of its own, under the package.
BUNDLED = ("runtime/tcc/tcc.exe", "runtime/tcc/tcc")
# Environment variables with further places for headers, for every common compiler.
HEADER_PLACES = ("CPATH", "C_INCLUDE_PATH", "INCLUDE")


def can_build() -> bool:
    """Triton is installed, with a compiler and Python's headers where it looks for them."""
    spec = importlib.util.find_spec("triton")
    if spec is None:
        return False
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    bundled = any((folder / name).is_file() for folder in folders for name in BUNDLED)
    return bundled or (_finds_compiler() and _finds_headers())


def _finds_compiler() -> bool:
    """Triton calls what CC names, whatever it is; else gcc or clang, on Windows also cl."""
    given = os.environ.get("CC")
    if given is not None:
        return shutil.which(given) is not None
    usual = ("gcc", "clang", "cl") if os.name == "nt" else ("gcc", "clang")
    return any(shutil.which(name) is not None for name in usual)


def _finds_headers() -> bool:
    """Python.h is where Triton has it looked for, or where the environment says."""
    scheme = sysconfig.get_default_scheme()
    if scheme == "posix_local":  # Debian's own; Triton takes the ordinary one
        scheme = "posix_prefix"
    places = [sysconfig.get_path("include", scheme)]
    for name in HEADER_PLACES:
        places += os.environ.get(name, "").split(os.pathsep)
    return any((Path(place) / "Python.h").is_file() for place in places if place)
