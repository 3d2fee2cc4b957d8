"""What a release must hold: metadata, contents, and a wheel that works in a new environment.

    python .ci/release.py

Nothing is pinned in that environment, except by PIP_CONSTRAINT where the caller sets it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NEEDED = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Description")
SMOKE = """
import sys, numpy as np, torch
import protopinv
from sklearn.datasets import load_iris
assert "site-packages" in protopinv.__file__, protopinv.__file__
X, y = load_iris(return_X_y=True)
model = protopinv.ProtoPINVClassifier(effort="quick", random_state=0).fit(X, y)
assert model.score(X, y) > 0.9
model.save("model.safetensors")
assert np.array_equal(protopinv.load("model.safetensors").predict_proba(X), model.predict_proba(X))
model.export("model.mjs")
print("protopinv", protopinv.__version__, "torch", torch.__version__, "Python", sys.version[:6])
"""


def main() -> None:
    """Build, check, install, use."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (archive,) = (list(DIST.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    check_wheel(wheel)
    check_archive(archive)
    with tempfile.TemporaryDirectory() as folder:
        use(wheel, Path(folder))
    print(f"{wheel.name} and {archive.name} are fit for a release")


def run(*command: object, cwd: Path = ROOT) -> str:
    """A command that must succeed; what it printed."""
    # What is tested is the wheel, so the source must not be found beside it.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    result = subprocess.run(
        words, cwd=cwd, env=clean, stdout=subprocess.PIPE, text=True, check=True
    )
    return result.stdout


def check_wheel(wheel: Path) -> None:
    """Metadata that an index takes, and our package alone."""
    from packaging.metadata import Metadata

    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = packed.read(info).decode()
    Metadata.from_email(text, validate=True)
    fields = Parser().parsestr(text)
    missing = [name for name in NEEDED if not (fields[name] or fields.get_payload())]
    others = [name for name in names if not name.startswith(("protopinv/", "protopinv-"))]
    require(not missing, f"The metadata lack {missing}")
    require(not others, f"The wheel holds more than the package: {others[:5]}")
    require("protopinv/py.typed" in names, "The wheel lacks py.typed")


def check_archive(archive: Path) -> None:
    """The source, with what is needed to build and to judge it."""
    with tarfile.open(archive) as packed:
        names = {name.split("/", 1)[-1] for name in packed.getnames()}
    for name in ("LICENSE", "README.md", "pyproject.toml", "src/protopinv/__init__.py"):
        require(name in names, f"The archive lacks {name}")


def use(wheel: Path, folder: Path) -> None:
    """Install into a new environment, and use it as a stranger would."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[table]")
    print(run(python, "-W", "error", "-c", SMOKE, cwd=folder).strip())
    command = folder / "env" / "bin" / "protopinv"
    require("train" in run(command, "--help", cwd=folder), "The command does not help")
    rows = [f"{i},{i % 7},{'even' if i % 2 == 0 else 'odd'}" for i in range(60)]
    (folder / "rows.csv").write_text("\n".join(["a,b,kind", *rows]))
    options = ("--target", "kind", "--effort", "quick", "-o", "m.safetensors", "--json")
    run(command, "train", "rows.csv", *options, cwd=folder)
    run(command, "evaluate", "m.safetensors", "rows.csv", "--target", "kind", cwd=folder)


def require(condition: bool, fault: str) -> None:
    """End with what is wrong."""
    if not condition:
        sys.exit(f"error: {fault}.")


if __name__ == "__main__":
    main()
