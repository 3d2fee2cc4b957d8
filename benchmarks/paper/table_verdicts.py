"""The claims of the abstract and of Table 1, held against the table's record."""

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.paper.table1 import TableRow, table_rows
from benchmarks.paper.text import NAMES
from benchmarks.paper.verdicts import Judgement, Verdict
from protopinv.bench.scores import Score

TABLE = "Table 1"
CLAIMED_RATIO = 25
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
        _slow_mlp(rows["mlp-165"], rows["protopinv"]),
        _ahead(rows),
    ]


def _reaches(rows: Rows, key: str, claim: str, note: str = "") -> Verdict:
    row = rows[key]
    reached = all(row.scores[name].mean >= said for name, said in row.method.paper.items())
    listed = ", ".join(f"{NAMES[name]} {score}" for name, score in row.scores.items())
    text = f"{note}: {listed}" if note else f"{listed}, {row.trained:,} trained"
    return Verdict(TABLE, claim, "confirmed" if reached else "wrong", text)


def _slow_mlp(mlp: TableRow, ours: TableRow) -> Verdict:
    """A ratio holds on any GPU."""
    ratio = mlp.seconds / ours.seconds
    judgement: Judgement = "confirmed" if ratio > CLAIMED_RATIO / 2 else "wrong"
    text = (
        f"{ratio:.1f} times our {ours.seconds:.2f} s on the same GPU, its rows on the device and "
        "its steps captured"
    )
    claim = f"That MLP needs 100 to 150 s, {CLAIMED_RATIO} times ours and more"
    return Verdict(TABLE, claim, judgement, text)


def _ahead(rows: Rows) -> Verdict:
    ours = rows["protopinv"]
    texts, gains = [], []
    for key in ("mlp-165", "mlp-336"):
        other = rows[key]
        parts = []
        for name, score in ours.scores.items():
            gain, margin = score.mean - other.scores[name].mean, _margin(score, other.scores[name])
            gains.append(0.0 if abs(gain) <= margin else gain)
            parts.append(f"{gain:+.2f} on {NAMES[name]} (margin {margin:.2f})")
        texts.append(f"{key} ({_size(other)}): {', '.join(parts)}")
    judgement: Judgement = "different"
    if min(gains) >= 0 < max(gains):
        judgement = "confirmed"
    elif max(gains) <= 0:
        judgement = "wrong"
    return Verdict(
        "Abstract",
        "Favourable accuracy, speed and size against shallow MLPs",
        judgement,
        f"ours ({_size(ours)}) in points against MLPs tuned with the same budget; "
        + "; ".join(texts),
    )


def _size(row: TableRow) -> str:
    return f"{row.trained:,} trained, {row.shipped:,} shipped, {row.seconds:.2f} s"


def _margin(one: Score, other: Score) -> float:
    """Two standard errors of the difference between two means."""
    return 2 * math.sqrt(sum((score.sd or 0.0) ** 2 / score.n for score in (one, other)))
