"""What the table's record, and those of times, have to say to the paper's claims."""

from collections.abc import Mapping
from typing import Any

from benchmarks.paper import deciding
from benchmarks.paper.comparison import Difference, Named, against, unpaired
from benchmarks.paper.deciding import Judgement
from benchmarks.paper.findings import (
    Find,
    Finding,
    MissingRecordError,
    Record,
    Sources,
    settled,
)
from benchmarks.paper.names import NAMES
from benchmarks.paper.table1 import TableRow, table_rows, test_cells

OURS = "protopinv"
SAID_NUMBERS = 130_000
STABLE = 0.01  # relative error of weights that we still call right


def tests(record: Record, method: str, dataset: str) -> list[float]:
    """Percent right of the test set, a seed each."""
    return [100 * cell["test"] for cell in test_cells(record, method, dataset)]


def row_of(record: Record, method: str) -> TableRow:
    """The row of a method."""
    return next(row for row in table_rows(record) if row.method.key == method)


def reaches(method: str) -> Find:
    """The accuracies that the paper's table gives for a method."""

    def find(sources: Sources) -> Finding:
        row = row_of(sources.table, method)
        compared = {
            f"{NAMES[name]} against {said}": against(tests(sources.table, method, name), said)
            for name, said in row.method.paper.items()
        }
        return Finding(deciding.reaches, compared, f"{row.method.title}: {size(row)}")

    return find


def size(row: TableRow) -> str:
    """What a method needs."""
    return f"{row.trained:,} trained, {row.shipped:,} shipped, {row.seconds:.2f} s"


def number_of_parameters(sources: Sources) -> Finding:
    """Trained numbers of our row."""
    trained = row_of(sources.table, OURS).trained
    note = f"150 x (400 + 512 + 10) = {trained:,}; the paper's own table says 138k"
    return settled(deciding.about(trained, SAID_NUMBERS), note)


def other_gpu(*methods: str) -> Find:
    """Seconds on another GPU say nothing about those on an RTX 5060."""

    def find(sources: Sources) -> Finding:
        device = sources.table["environment"]["device"]
        rows = [row_of(sources.table, method) for method in methods]
        seconds = ", ".join(f"{row.seconds:.2f} s for {row.method.title}" for row in rows)
        return settled("not tested", f"there is no RTX 5060 here. On {device}: {seconds}")

    return find


def ahead_of(*methods: str) -> Find:
    """Accuracy, numbers shipped and seconds against each of these methods."""

    def find(sources: Sources) -> Finding:
        compared: dict[str, Difference] = {}
        ours, notes = row_of(sources.table, OURS), []
        others = [row_of(sources.table, method) for method in methods]
        for other in others:
            for dataset in ours.scores:
                name = f"{NAMES[dataset]}, ours against {other.method.title}"
                compared[name] = unpaired(
                    tests(sources.table, OURS, dataset),
                    tests(sources.table, other.method.key, dataset),
                )
            notes.append(f"{other.method.title}: {size(other)}")

        def decide(found: Named) -> Judgement:
            return _worst(
                [
                    _trade(
                        [v for name, v in found.items() if name.endswith(other.method.title)],
                        ours,
                        other,
                    )
                    for other in others
                ]
            )

        return Finding(decide, compared, f"ours: {size(ours)}; " + "; ".join(notes))

    return find


def _trade(found: list[Difference], ours: TableRow, other: TableRow) -> Judgement:
    """Favourable: nowhere seen behind in accuracy, and smaller or quicker besides, or ahead."""
    behind = any(value.is_less for value in found)
    ahead = any(value.is_more for value in found)
    smaller, quicker = ours.shipped < other.shipped, ours.seconds < other.seconds
    if not behind and (smaller or quicker):
        return "confirmed" if smaller and quicker else "different"
    return "different" if ahead or smaller or quicker else "wrong"


def _worst(found: list[Judgement]) -> Judgement:
    """What can be said of all: the same for each, or else that they differ."""
    return found[0] if len(set(found)) == 1 else "different"


def frontier(sources: Sources) -> Finding:
    """Methods of the table that are at least as good as ours in all, by what is shipped."""
    rows = table_rows(sources.table)
    ours = row_of(sources.table, OURS)
    beaten_by: list[TableRow] = []
    compared: dict[str, Difference] = {}
    for row in rows:
        if row.method.key.startswith(OURS):
            continue
        found = {
            f"{NAMES[name]}, ours against {row.method.title}": unpaired(
                tests(sources.table, OURS, name), tests(sources.table, row.method.key, name)
            )
            for name in ours.scores
        }
        if row.shipped <= ours.shipped:
            compared |= found
            beaten_by.append(row)
    quick = [row.method.title for row in beaten_by if row.seconds <= ours.seconds]

    def decide(found: Named) -> Judgement:
        by = [
            row.seconds <= ours.seconds
            for row in beaten_by
            if not any(v.is_more for name, v in found.items() if name.endswith(row.method.title))
        ]
        return "wrong" if any(by) else "different" if by else "confirmed"

    note = (
        f"ours: {size(ours)}. Of those that ship no more, "
        f"{', '.join(quick) if quick else 'none'} fits sooner"
    )
    return Finding(decide, compared, note)


def analytic_methods(sources: Sources) -> Finding:
    """ELM against the MLP: less accurate, as is said, and quicker, as is said."""
    table = sources.table
    elm, mlp = row_of(table, "elm-10200"), row_of(table, "mlp-165")
    compared = {
        f"{NAMES[name]}, ELM against MLP": unpaired(
            tests(table, "elm-10200", name), tests(table, "mlp-165", name)
        )
        for name in elm.scores
    }

    def decide(found: Named) -> Judgement:
        accuracy = deciding.less(found)
        if accuracy != "confirmed":
            return accuracy
        return "confirmed" if elm.seconds < mlp.seconds else "different"

    return Finding(decide, compared, f"ELM: {size(elm)}; MLP: {size(mlp)}")


def back_propagation_costs(sources: Sources) -> Finding:
    """One network trained both ways in the same loop: seconds and memory."""
    cell = cell_of(sources.table, "cost")
    bank, plain = cell["bank"], cell["back-propagation"]
    slower = plain["seconds"] > bank["seconds"]
    larger = (plain["peak_megabytes"] or 0) > (bank["peak_megabytes"] or 0)
    note = (
        "400 - 512 - 10, full batch, 250 epochs, in the same loop; back-propagation: "
        f"{_cost(plain)}; ours, which back-propagates through the same network and the solves "
        f"besides: {_cost(bank)}"
    )
    judgement: Judgement = (
        "confirmed" if slower and larger else "different" if slower or larger else "wrong"
    )
    return settled(judgement, note)


def _cost(cell: Mapping[str, Any]) -> str:
    peak = cell["peak_megabytes"]
    memory = "" if peak is None else f", {peak:.0f} MB at most"
    return f"{cell['seconds']:.3f} s (median of {len(cell['all'])}){memory}"


def cell_of(record: Record, key: str) -> Mapping[str, Any]:
    """A figure beside the table, if this record has it."""
    if key not in record["cells"]:
        raise MissingRecordError("make paper")
    cell: Mapping[str, Any] = record["cells"][key]
    return cell


def positive_ridge(sources: Sources) -> Finding:
    """Whether a positive ridge is enough for Cholesky in float32."""
    cell = cell_of(sources.table, "numerics")
    errors = {ridge: found["dual"] for ridge, found in cell["errors"].items()}
    return _numerics(errors, cell, "Cholesky")


def svd_fallback(sources: Sources) -> Finding:
    """The same by SVD."""
    cell = cell_of(sources.table, "numerics")
    errors = {ridge: found["svd"] for ridge, found in cell["errors"].items()}
    return _numerics(errors, cell, "SVD")


def _numerics(errors: Mapping[str, float], cell: Mapping[str, Any], how: str) -> Finding:
    right = [error < STABLE for error in errors.values()]
    judgement: Judgement = "confirmed" if all(right) else "different" if any(right) else "wrong"
    listed = ", ".join(f"λ = {ridge}: {error:.1g}" for ridge, error in errors.items())
    note = f"relative error of float32 weights by {how}, κ = {cell['condition']:g}; {listed}"
    return settled(judgement, note)


def independent_of_rows(sources: Sources) -> Finding:
    """How the time of an epoch grows with the rows."""
    cell = sources.speed["cells"]["scaling/n"]
    grows = float(cell["exponent"])
    sizes = f"{cell['sizes'][0]:,} to {cell['sizes'][-1]:,} rows"
    judgement: Judgement = "wrong" if grows > 0.5 else "different" if grows > 0.1 else "confirmed"
    note = (
        f"an epoch's time grows as the rows to the power {grows:.2f}, {sizes}, n = "
        f"{len(cell['sizes'])}; only the solves do not see the rows"
    )
    return settled(judgement, note)


def float32_rows(sources: Sources) -> Finding:
    """Rows in bfloat16, with solves in float32, against float32 throughout."""
    scores: dict[str, list[float]] = {"float32": [], "bfloat16 rows": []}
    for key, cell in sources.speed["cells"].items():
        if key.startswith("accuracy/") and key.split("/")[1] in scores:
            scores[key.split("/")[1]].append(100 * cell["held_out"])
    seconds = sources.speed["cells"]["250 epochs"]["seconds"]
    compared = {
        "MNIST, bfloat16 rows against float32": unpaired(scores["bfloat16 rows"], scores["float32"])
    }

    def decide(found: Named) -> Judgement:
        harmless = deciding.no_loss(found)
        if harmless == "confirmed":
            return "different"  # float32 is not needed for rows
        return "confirmed" if harmless == "wrong" else harmless

    ratio = seconds["float32"] / seconds["bfloat16"]
    note = f"rows in bfloat16 are {ratio:.1f} times as fast; solves stay in float32"
    return Finding(decide, compared, note)


def on_device(sources: Sources) -> Finding:
    """Retraining time, and what must be shipped, against the MLP of the paper's table."""
    ours, mlp = (row_of(sources.table, key) for key in (OURS, "mlp-165"))
    quick, small = ours.seconds < mlp.seconds, ours.shipped < mlp.shipped
    judgement: Judgement = (
        "confirmed" if quick and small else "different" if quick or small else "wrong"
    )
    note = (
        f"fits in {ours.seconds / mlp.seconds:.2f} of the MLP's time and ships "
        f"{ours.shipped / mlp.shipped:.1f} times its numbers; ours {size(ours)}; MLP {size(mlp)}. "
        "What exports take in flash is on the page on export"
    )
    return settled(judgement, note)


def stems(sources: Sources) -> Finding:
    """What a stem adds to our network of the same budget, on the test sets."""
    compared = {}
    for dataset, name in NAMES.items():
        one, stem = (
            [
                100 * cell["test"]
                for key, cell in sources.record(f"accuracy-{row}-{dataset}-cuda", "make accuracy")[
                    "cells"
                ].items()
                if key.startswith(f"test/{row}/protopinv/")
            ]
            for row in ("one", "stem")
        )
        compared[f"{name}, with a stem against without"] = unpaired(stem, one)
    note = "judged is whether flat rows cost accuracy; stems of fixed filters are in the library"
    return Finding(deciding.more, compared, note)
