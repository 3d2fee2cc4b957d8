"""The claims of the abstract and of Table 1, held against the record of ``bench paper``."""

from collections.abc import Mapping
from typing import Any

from protopinv.bench.paper import TableRow, table_rows
from protopinv.bench.tables import NAMES
from protopinv.bench.verdicts import Judgement, Verdict

TABLE = "Table 1"
Rows = Mapping[str, TableRow]


def table_verdicts(record: Mapping[str, Any]) -> list[Verdict]:
    """What the table says of our method and of its baselines."""
    rows = {row.method.key: row for row in table_rows(record)}
    device = record["environment"]["device"]
    return [
        _reaches(rows, "protopinv", "Proto-PINV+H reaches 97.8 and 89.3 % with 138k numbers"),
        Verdict(
            TABLE,
            "Proto-PINV+H trains in 3.9 to 4.5 s on an RTX 5060",
            "different",  # another GPU, so neither right nor wrong
            f"{rows['protopinv'].seconds:.2f} s on {device}, projection and transfers included",
        ),
        _reaches(rows, "elm-10200", "ELM reaches 96.2 and 88.3 %", "10,200 units"),
        _reaches(rows, "elm-128", "the same with 102k numbers in all", "128 units"),
        _reaches(rows, "random-features-10200", "RF + ridge reaches 95.2 and 87.3 %", "Fourier"),
        _reaches(rows, "random-linear-10200", "the same with linear features", "linear"),
        _reaches(rows, "mlp-165", "An MLP with 165 hidden units reaches 98.0 and 89.0 %"),
        _slow_mlp(rows["mlp-165"], device),
        _ahead(rows),
    ]


def _reaches(rows: Rows, key: str, claim: str, note: str = "") -> Verdict:
    row = rows[key]
    reached = all(row.scores[name].mean >= said for name, said in row.method.paper.items())
    listed = ", ".join(f"{NAMES[name]} {score}" for name, score in row.scores.items())
    text = f"{note}: {listed}" if note else f"{listed}, {row.trained:,} trained"
    return Verdict(TABLE, claim, "confirmed" if reached else "wrong", text)


def _slow_mlp(row: TableRow, device: str) -> Verdict:
    judgement: Judgement = "wrong" if row.seconds < 10 else "different"
    text = f"{row.seconds:.2f} s on {device}, its rows on the GPU and its steps captured"
    return Verdict(TABLE, "That MLP needs 100 to 150 s", judgement, text)


def _ahead(rows: Rows) -> Verdict:
    ours = rows["protopinv"]
    texts, ahead = [], []
    for key in ("mlp-165", "mlp-336"):
        for name, score in ours.scores.items():
            gain = score.mean - rows[key].scores[name].mean
            ahead.append(gain > 0)
            texts.append(f"{gain:+.2f} on {NAMES[name]} against {key}")
    times = f"fit {ours.seconds:.2f} s against {rows['mlp-165'].seconds:.2f} s"
    judgement: Judgement = "confirmed" if all(ahead) else "different" if any(ahead) else "wrong"
    return Verdict(
        "Abstract",
        "Favourable accuracy, speed and size against shallow MLPs",
        judgement,
        f"points, the MLPs tuned with the same budget: {', '.join(texts)}; {times}",
    )
