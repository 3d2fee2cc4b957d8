"""One of several processes that fit iris at once: ``python -m benchmarks.tables.crowd FITS``.

It says that it is warm, waits for a line, and says how many seconds a fit took on average.
"""

import sys
import time

from sklearn.datasets import load_iris

from protopinv import ProtoPINVClassifier


def main() -> None:
    """Fit once to warm up, then as often as asked."""
    fits = int(sys.argv[1])
    X, y = load_iris(return_X_y=True)
    model = ProtoPINVClassifier(device="cpu", random_state=0)
    model.fit(X, y)
    print("warm", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    for _ in range(fits):
        model.fit(X, y)
    print((time.perf_counter() - started) / fits, flush=True)


if __name__ == "__main__":
    main()
