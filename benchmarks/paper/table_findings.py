"""What the table's record, and those of times, have to say to the paper's claims."""

from collections.abc import Mapping
from typing import Any

from benchmarks.paper import deciding
from benchmarks.paper.comparison import Difference, Named, against, unpaired
from benchmarks.paper.deciding import Judgement
from benchmarks.paper.findings import Find, Finding, MissingRecordError, Sources, settled
from benchmarks.paper.table1 import TableRow, table_rows, test_cells
from benchmarks.record import Content
from benchmarks.tasks import NAMES

OURS = "protopinv"
SAID_NUMBERS = 130_000
STABLE = 0.01  # relative error of weights that we still call right


def tests(record: Content, method: str, dataset: str) -> list[float]:
    """Percent right of the test set, a seed each."""
    return [100 * cell["test"] for cell in test_cells(record, method, dataset)]


def row_of(record: Content, method: str) -> TableRow:
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


def _against(sources: Sources, other: TableRow) -> dict[str, Difference]:
    """Ours minus another method, on every data set."""
    return {
        f"{NAMES[dataset]}, ours against {other.method.title}": unpaired(
            tests(sources.table, OURS, dataset), tests(sources.table, other.method.key, dataset)
        )
        for dataset in other.scores
    }


def ahead_of(*methods: str) -> Find:
    """Accuracy, numbers shipped and seconds against each of these methods."""

    def find(sources: Sources) -> Finding:
        ours = row_of(sources.table, OURS)
        others = [row_of(sources.table, method) for method in methods]
        pairs = [(other, _against(sources, other)) for other in others]

        def decide(corrected: Named) -> Judgement:
            return deciding.of_all(
                [
                    deciding.favourable(
                        [corrected[name] for name in named],
                        smaller=ours.shipped < other.shipped,
                        quicker=ours.seconds < other.seconds,
                    )
                    for other, named in pairs
                ]
            )

        compared = {name: value for _, named in pairs for name, value in named.items()}
        notes = "; ".join(f"{other.method.title}: {size(other)}" for other in others)
        return Finding(decide, compared, f"ours: {size(ours)}; {notes}")

    return find


def frontier(sources: Sources) -> Finding:
    """Whether a method that ships no more is as accurate, and whether it is as quick besides."""
    ours = row_of(sources.table, OURS)
    smaller = [
        row
        for row in table_rows(sources.table)
        if row.shipped <= ours.shipped and not row.method.key.startswith(OURS)
    ]
    pairs = [(row, _against(sources, row)) for row in smaller]

    def decide(corrected: Named) -> Judgement:
        rivals = [row for row, named in pairs if not any(corrected[name].is_more for name in named)]
        if not rivals:
            return "confirmed"
        return "wrong" if any(row.seconds <= ours.seconds for row in rivals) else "different"

    compared = {name: value for _, named in pairs for name, value in named.items()}
    note = f"ours: {size(ours)}; compared are those that ship no more: " + "; ".join(
        f"{row.method.title} in {row.seconds:.2f} s" for row in smaller
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

    def decide(corrected: Named) -> Judgement:
        accuracy = deciding.less(corrected)
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
    return settled(deciding.as_said(slower, larger), note)


def _cost(cell: Mapping[str, Any]) -> str:
    peak = cell["peak_megabytes"]
    memory = "" if peak is None else f", {peak:.0f} MB at most"
    return f"{cell['seconds']:.3f} s (median of {len(cell['all'])}){memory}"


def cell_of(record: Content, key: str) -> Mapping[str, Any]:
    """A figure beside the table, if this record has it."""
    if key not in record["cells"]:
        raise MissingRecordError("make paper")
    cell: Mapping[str, Any] = record["cells"][key]
    return cell


def positive_ridge(sources: Sources) -> Finding:
    """Whether a positive ridge is enough for Cholesky in float32."""
    cell = cell_of(sources.table, "numerics")
    errors = {ridge: forms["dual"] for ridge, forms in cell["errors"].items()}
    return _numerics(errors, cell, "Cholesky")


def svd_fallback(sources: Sources) -> Finding:
    """The same by SVD."""
    cell = cell_of(sources.table, "numerics")
    errors = {ridge: forms["svd"] for ridge, forms in cell["errors"].items()}
    return _numerics(errors, cell, "SVD")


def _numerics(errors: Mapping[str, float], cell: Mapping[str, Any], how: str) -> Finding:
    right = [error < STABLE for error in errors.values()]
    listed = ", ".join(f"λ = {ridge}: {error:.1g}" for ridge, error in errors.items())
    note = f"relative error of float32 weights by {how}, κ = {cell['condition']:g}; {listed}"
    return settled(deciding.as_said(*right), note)


def independent_of_rows(sources: Sources) -> Finding:
    """How the time of an epoch grows with the rows."""
    cell = sources.speed["cells"]["scaling/n"]
    grows = float(cell["exponent"])
    sizes = f"{cell['sizes'][0]:,} to {cell['sizes'][-1]:,} rows"
    note = (
        f"an epoch's time grows as the rows to the power {grows:.2f}, {sizes}, n = "
        f"{len(cell['sizes'])}; only the solves do not see the rows"
    )
    return settled(deciding.does_not_grow(grows), note)


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

    def decide(corrected: Named) -> Judgement:
        harmless = deciding.no_loss(corrected)
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
    note = (
        f"fits in {ours.seconds / mlp.seconds:.2f} of the MLP's time and ships "
        f"{ours.shipped / mlp.shipped:.1f} times its numbers; ours {size(ours)}; MLP {size(mlp)}. "
        "What exports take in flash is on the page on export"
    )
    return settled(deciding.as_said(quick, small), note)


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
