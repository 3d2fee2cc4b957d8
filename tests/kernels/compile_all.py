"""Compile every kernel for a GPU this machine need not have, and print how many there were.

Run by itself: the interpreter, which other tests use, accepts what the compiler does not.
"""

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from protopinv.kernels import head, sweep, update

FLOATS, ROUGH, LONGS, FLAGS = "*fp32", "*bf16", "*i64", "*i1"
# By the name of an argument, which means the same in every kernel of a module.
TYPES = {
    head: {"Z": ROUGH, "W": ROUGH, "G": ROUGH, "Y": LONGS, "scale": "fp32", "smoothing": "fp32"},
    sweep: {"eps": "fp32"},
    update: {
        "FAILURES": LONGS,
        "SKIP": FLAGS,
        **dict.fromkeys(("beta1", "beta2", "eps", "tolerance"), "fp32"),
    },
}


def compiled(module: Any, kernel: Any, warps: int = 4, **constants: Any) -> None:
    """Names in capitals point at float32 numbers, others are int32, unless TYPES has them."""
    names = kernel.arg_names
    kinds = {name: FLOATS if name.isupper() else "i32" for name in names} | TYPES[module]
    signature = {name: "constexpr" if name in constants else kinds[name] for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=values)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def main() -> None:
    tiles = {"R": head.ROWS, "C": head.COLUMNS}
    back = {"R": head.ROWS_BACK, "C": head.COLUMNS}
    work: list[tuple[Any, Any, dict[str, Any]]] = []
    for activation in ("relu", "gelu"):
        chosen = {"K": 16, "ACTIVATION": activation}
        counted = {"WEIGHED": activation == "gelu"}
        work.append((head, head._forward, {**chosen, **counted, **tiles}))
        work.append((head, head._backward, {**chosen, **back}))
    for wide in (16, 128):
        work.append((head, head._finish, {"K": wide, **head.finishing(wide)}))
    work.append((sweep, sweep._eliminate, {"B": sweep.BLOCK, "warps": sweep.WARPS}))
    work.append((sweep, sweep._estimate, {"P": 256, "N": 8}))
    work.append((update, update._update, {"B": update.UPDATE_BLOCK}))
    work.append((update, update._square, {"B": update.CHECK_BLOCK}))
    work.append((update, update._judge, {"L": 2, "P": 64, "warps": 1}))
    for module, kernel, constants in work:
        compiled(module, kernel, **constants)
    sys.stdout.write(str(len(work)))


if __name__ == "__main__":
    main()
