"""Small rules about words in ``src``: python .ci/words.py [folder ...]

No docstring begins with "The same". No public function or class is defined in two modules; commands
are called like the functions they run. No variable, parameter or attribute has a name that says
nothing by itself.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"
SAY_NOTHING = {"found", "kept", "given", "taken", "told", "known", "wanted", "whole"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def faults(path: Path, tree: ast.Module) -> Iterator[str]:
    """What breaks a rule in one file."""
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS | ast.Module):
            text = ast.get_docstring(node) or ""
            if text.startswith("The same"):
                name = getattr(node, "name", "module")
                yield f"{path}: the docstring of {name} says what it does by itself, not 'The same'"
        name = _assigned(node)
        if name in SAY_NOTHING:
            yield f"{path}:{node.lineno}: a variable is named by what it holds, not {name!r}"


def _assigned(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else node.attr
    return node.arg if isinstance(node, ast.arg) else None


def public(tree: ast.Module) -> list[str]:
    """Names of the functions and classes of a module, without private ones."""
    return [n.name for n in tree.body if isinstance(n, DEFINITIONS) and n.name[0] != "_"]


def main(folders: list[str]) -> int:
    """Print every fault; 1 if there is one."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    places = defaultdict(list)
    for path, tree in trees.items():
        for name in public(tree) if "cli" not in path.parts else ():
            places[name].append(str(path.relative_to(ROOT.parent)))
    lines = [
        line for path, tree in trees.items() for line in faults(path.relative_to(ROOT.parent), tree)
    ]
    lines += [
        f"{' and '.join(paths)}: {name} is defined once"
        for name, paths in places.items()
        if len(paths) > 1
    ]
    chosen = [line for line in lines if not folders or any(folder in line for folder in folders)]
    print("\n".join(chosen) or "words: nothing to change")
    return int(bool(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
