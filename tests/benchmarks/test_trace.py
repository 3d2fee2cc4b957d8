"""What a call passes through stays small enough to be read."""

import sys

from benchmarks.against import calls
from benchmarks.against.study import ROOT, run_with
from benchmarks.against.trace import measure_trace, trace_table
from benchmarks.record import Records


def test_a_traced_function_counts_once_with_its_file_and_depth(tmp_path):
    module = tmp_path / "steps.py"
    module.write_text(
        "def outer():\n"
        "    return [inner(n) for n in range(3)] + list(map(lambda n: inner(n), range(3)))\n"
        "def inner(n):\n"
        "    return n\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        import steps

        counts = calls.traced(steps.outer, tmp_path)
    finally:
        sys.path.remove(str(tmp_path))
    assert counts == {"files": 1, "functions": 2, "depth": 2}


def test_the_table_has_a_line_for_every_call(tmp_path):
    record = measure_trace(Records(tmp_path)).content
    table = trace_table(record)
    assert {"`fit`", "`predict_proba`", "`partial_fit`", "`protopinv train`"} <= {
        cell.strip() for line in table for cell in line.split("|")
    }
    assert record["cells"]["now"]["calls"] == run_with(ROOT / "src", calls.__name__)
