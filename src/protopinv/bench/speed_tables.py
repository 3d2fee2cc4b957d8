"""What a record of ``bench speed`` says, as tables and as panels to draw."""

from collections.abc import Iterator, Mapping
from typing import Any

from protopinv.bench.markdown import markdown
from protopinv.bench.scaling import AXES
from protopinv.bench.scores import percent
from protopinv.bench.speed import path_scores
from protopinv.bench.speed_figures import path_of
from protopinv.report.figures import Panel, Series

Record = Mapping[str, Any]
# Parts of a profile that a page names, and the share of the whole they must have.
NAMED = 6
LEAST = 0.02
# Instead of a number in bfloat16, where the machine has no instructions for it.
NOT_HERE = "not here"
HEADER = ["figure", "ours", "peer", "peer / ours", "floor", "accuracy"]


def speed_tables(record: Record) -> list[str]:
    """Figures, the accuracy of every path, and how time grows."""
    machine = record["cells"]["machine"]
    lines = [
        f"Products of large matrices run at {machine['float32'] / 1e9:,.0f} GFLOP/s in float32"
        f"{_rough_rate(machine)}, copies at {machine['bandwidth'] / 1e9:,.0f} GB/s.",
        "",
        *markdown(HEADER, list(_figures(record))),
        "",
        *_others(record),
    ]
    lines += _profiles(record)
    scores = path_scores(record)
    if scores:
        epochs = next(c["epochs"] for k, c in record["cells"].items() if k.startswith("accuracy/"))
        lines += ["", f"Held-out accuracy after {epochs} full-batch epochs, by path:", ""]
        told = {path: str(score) for path, score in scores.items()}
        if machine["bfloat16"] is None:
            told[path_of("bfloat16")] = NOT_HERE
        lines += markdown(["path", "%"], [[path, score] for path, score in told.items()])
    if "scaling/n" in record["cells"]:
        lines += ["", *_growth(record)]
    return lines


def _rough_rate(machine: Mapping[str, Any]) -> str:
    if machine["bfloat16"] is None:
        return " here, which has no products in bfloat16"
    return f" and {machine['bfloat16'] / 1e9:,.0f} in bfloat16 here"


def _figures(record: Record) -> Iterator[list[str]]:
    cells = record["cells"]
    for key, title in (("epoch", "a full-batch epoch"), ("250 epochs", "250 full-batch epochs")):
        if key in cells:
            found, floors = cells[key]["seconds"], cells[key]["floor"]
            for kind in ("float32", "bfloat16"):
                name = f"{title}, {kind}; peer: the paper's listing in float32"
                if kind not in found:
                    yield [name, NOT_HERE, "", "", "", ""]
                    continue
                score = str(path_scores(record).get(path_of(kind), ""))
                yield _line(name, found[kind], found["listing"], floors[kind], score)
    if "step against an MLP" in cells:
        found = cells["step against an MLP"]
        ours = found["seconds"]["ours"]
        for peer, how in (("mlp", "our kernels"), ("mlp, plain paths", "torch's operations")):
            name = f"a captured step, bfloat16; peer: an MLP of the same width, by {how}"
            yield _line(name, ours, found["seconds"][peer], found["floor"])
    if "fit" in cells:
        yield from _fits(cells["fit"])
    for key in ("one row", "many rows"):
        if key in cells:
            found = cells[key]
            rows = "one row" if found["rows"] == 1 else f"{found['rows']:,} rows"
            for who, how in (("ours", "by one bank"), ("five banks", "by five, as by default")):
                if who in found["seconds"]:
                    name = f"predict_proba of {rows} on the host, {how}; peer: scikit-learn's MLP"
                    yield _line(name, found["seconds"][who], found["seconds"]["peer"], None)


def _fits(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """Ours, alone or against the peer at its defaults and tuned."""
    name, ours = "from host arrays to a fitted model", found["seconds"]["ours"]
    score = f"{percent(found['accuracy'])} test"
    if "peer" not in found["seconds"]:
        yield _line(name, ours, None, None, score)
    for peer, how in (("peer", "at its defaults"), ("tuned peer", "best of nine")):
        if peer in found["seconds"]:
            key = peer.replace(" ", "_")
            told = f"peer {100 * found[f'{key}_accuracy']:.2f}, {found[f'{key}_epochs']} epochs"
            title = f"{name}; peer: scikit-learn's MLP {how}, until it has 97.8 %"
            yield _line(title, ours, found["seconds"][peer], None, f"{score} ({told})")


def _line(
    name: str, ours: float, peer: float | None, floor: float | None, accuracy: str = ""
) -> list[str]:
    ratio = "" if peer is None else f"**{peer / ours:.2f}**"
    return [name, readable(ours), _or_empty(peer), ratio, _or_empty(floor), accuracy]


def _or_empty(time: float | None) -> str:
    return "" if time is None else readable(time)


def readable(time: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time / 1e-6:.3g} µs"


def _others(record: Record) -> Iterator[str]:
    cells = record["cells"]
    megabytes = cells.get("memory", {}).get("megabytes")
    if megabytes is not None:
        yield f"Peak memory of a full-batch fit over its data: {megabytes:.0f} MB."
    start = cells.get("start", {})
    if start and not start.get("checked"):  # an early record did not ask how programs ended
        yield "Start-up times of this record are left out: its programs were not seen to succeed."
        return
    for name, time in start.get("seconds", {}).items():
        yield f"A new process, {name}: {readable(time)}."


def _profiles(record: Record) -> Iterator[str]:
    """Where the time of a step goes."""
    for kind, parts in record["cells"].get("profile", {}).items():
        whole = sum(parts.values())
        named = [name for name in parts if name != "everything else"][:NAMED]
        named = [name for name in named if parts[name] >= LEAST * whole]
        shares = [f"{name} {parts[name] / whole:.0%}" for name in named]
        yield ""
        yield f"Where a step in {kind} spends its time: {', '.join(shares)}."


def _growth(record: Record) -> list[str]:
    cells = record["cells"]
    rows = [
        [title, f"{cells[key]['sizes'][0]:,} to {cells[key]['sizes'][-1]:,}", _power(cells[key])]
        for axis, title in AXES.items()
        if (key := f"scaling/{axis}") in cells
    ]
    lines = markdown(["size", "measured", "time grows as its power"], rows)
    for key, text in (
        ("break-even/solve", "The dual and the primal form take as long at"),
        ("break-even/forward", "Rows through factors and through W take as long at"),
    ):
        if key in cells:
            lines += ["", f"{text} {_where(cells[key]['equal_at'])}."]
    return lines


def _power(cell: Mapping[str, Any]) -> str:
    return f"{cell['exponent']:.2f}"


def _where(p: float | None) -> str:
    if p is None:
        return "no number of prototypes that was tried"
    return f"{p:.0f} prototypes"


def speed_panels(record: Record) -> list[Panel]:
    """Time against every size, and the two break-even points."""
    cells = record["cells"]
    panels = []
    for axis, title in AXES.items():
        cell = cells[f"scaling/{axis}"]
        series = Series("epoch", cell["sizes"], cell["seconds"])
        name = f"{title}: power {cell['exponent']:.2f}"
        panels.append(Panel(name, title, "seconds", [series], log="xy", legend=False))
    for key, name in (("break-even/solve", "a solve"), ("break-even/forward", "a layer, forward")):
        if key in cells:
            cell = cells[key]
            lines = [Series(form, cell["sizes"], times) for form, times in cell["seconds"].items()]
            panels.append(Panel(name, "prototypes", "seconds", lines, log="xy"))
    return panels
