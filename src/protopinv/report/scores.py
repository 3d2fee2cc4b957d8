"""How good a model is on rows that were given to a page: aggregates of them, no row itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score

from protopinv.estimators.evaluation import Reliability, evaluate
from protopinv.estimators.rows import rows_to_predict
from protopinv.objective import Classes, Numbers
from protopinv.report.charts import Axes, bars, density, number, reliability
from protopinv.report.content import Fact, names_of
from protopinv.tables import frame_columns, is_frame

# Importance is measured on so many rows, shuffled so often.
IMPORTANCE_ROWS, REPEATS = 2_000, 5
HARDEST = 10
# Confusions of more classes are listed, not drawn.
MOST_DRAWN = 24
GRID = 30
WORDS = {"r2": "R2", "mae": "mean absolute error", "rmse": "root mean squared error"}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hard:
    """A row that the model is most wrong about: its number, and what it holds if that was asked."""

    row: int
    loss: str
    truth: str | None = None
    answer: str | None = None
    values: str | None = None


@dataclass(frozen=True)
class Scores:
    """All that rows with known targets say of a model."""

    n_rows: int
    measures: list[Fact]
    heads: list[str]
    table: list[list[str]]
    confusion: list[list[tuple[str, float]]] | None
    confused: list[str]
    charts: list[Markup]
    hardest: list[Hard]


def scores(estimator: Any, X: Any, y: Any, *, with_rows: bool) -> Scores:
    """What ``evaluate`` finds, and charts of it."""
    result = evaluate(estimator, X, y)
    names = names_of(estimator)
    outputs = estimator._outputs(X)
    known = ("n_rows", "confusion")
    measures = [
        Fact(WORDS.get(name, name.replace("_", " ")), number(value))
        for name, value in vars(result).items()
        if name not in known and isinstance(value, float)
    ]
    parts = next(v for name, v in vars(result).items() if name.startswith("per_"))
    heads = [name for name in vars(parts[0]) if name != "label"]
    table = [
        [name, *(_text(getattr(part, head)) for head in heads)]
        for name, part in zip(names, parts, strict=True)
    ]
    confusion, confused = _confusion(getattr(result, "confusion", None), names)
    charts, losses, truth, answer = _charts(estimator, outputs, y)
    return Scores(
        result.n_rows,
        measures,
        ["", *(("rows" if head == "n_rows" else WORDS.get(head, head)) for head in heads)],
        table,
        confusion,
        confused,
        charts,
        _hardest(X, losses, truth, answer, with_rows=with_rows),
    )


def _text(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value)


def _confusion(
    counts: Sequence[Sequence[float]] | None, names: Sequence[str]
) -> tuple[list[list[tuple[str, float]]] | None, list[str]]:
    """Cells with their share of the row; and the pairs that are most often confused."""
    if counts is None:
        return None, []
    matrix = np.asarray(counts, dtype=np.float64)
    off = matrix - np.diag(matrix.diagonal())
    worst = np.argsort(off, axis=None)[::-1][:5]
    pairs = [divmod(int(place), len(matrix)) for place in worst if off.flat[place] > 0]
    told = [f"{names[i]} taken for {names[j]}: {off[i, j]:,.0f} rows" for i, j in pairs]
    if len(matrix) > MOST_DRAWN:
        return None, told
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    cells = [
        [(f"{count:,.0f}", float(share)) for count, share in zip(row, part, strict=True)]
        for row, part in zip(matrix, shares, strict=True)
    ]
    return cells, told


def _charts(
    estimator: Any, outputs: Any, y: Any
) -> tuple[list[Markup], Array, list[str], list[str]]:
    """Charts of the task, and the loss, truth and answer of every row."""
    objective = estimator.objective_
    if isinstance(objective, Numbers):
        said = objective.decode(outputs.numpy()).reshape(len(y), -1)
        true = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        spread = np.maximum(true.std(axis=0), 1e-300)
        losses = (((said - true) / spread) ** 2).mean(axis=1)
        drawn = [
            _predicted(name, a, b)
            for name, a, b in zip(names_of(estimator), true.T, said.T, strict=True)
        ]
        texts = [[", ".join(map(number, row)) for row in part.tolist()] for part in (true, said)]
        return drawn, losses, texts[0], texts[1]
    probabilities = estimator.model_.probabilities(outputs)
    if isinstance(objective, Classes):
        place = {label: at for at, label in enumerate(estimator.classes_.tolist())}
        codes = np.array([place[label] for label in np.asarray(y).ravel().tolist()])
        best = probabilities.argmax(axis=1)
        sure, right = probabilities.max(axis=1), best == codes
        losses = -np.log(np.maximum(probabilities[np.arange(len(codes)), codes], 1e-300))
        labels = names_of(estimator)
        truth, answer = [labels[c] for c in codes], [labels[b] for b in best]
    else:
        true = np.asarray(y).astype(int)
        likely = np.where(true == 1, probabilities, 1 - probabilities)
        losses = -np.log(np.maximum(likely, 1e-300)).mean(axis=1)
        sure, right = probabilities.ravel(), true.ravel() == 1
        truth, answer = (
            [", ".join(map(str, np.flatnonzero(row))) or "none" for row in part]
            for part in (true, probabilities > 0.5)
        )
    return [_calibration(sure, right)], losses, truth, answer


def _calibration(sure: Array, right: NDArray[np.bool_]) -> Markup:
    """Groups of answers that are about as sure, as ``evaluate`` makes them."""
    found = Reliability.of(sure, right)
    shares = found.mass / found.mass.sum()
    bins = list(zip(found.sure.tolist(), found.right.tolist(), shares.tolist(), strict=True))
    return reliability("Calibration: how sure answers are and how often they are right", bins)


def _predicted(name: str, true: Array, said: Array) -> Markup:
    """How many rows have which truth and which answer: a grid, so that no row can be read off."""
    low, high = np.quantile(np.concatenate([true, said]), (0.002, 0.998))
    high = high if high > low else low + 1
    counts, _, _ = np.histogram2d(
        true.clip(low, high), said.clip(low, high), bins=GRID, range=[[low, high]] * 2
    )
    axes = Axes("true", name if name != "prediction" else "predicted", False, (low, high))
    return density(f"Predicted against true: {name}", axes, counts)


def _hardest(
    X: Any, losses: Array, truth: list[str], answer: list[str], *, with_rows: bool
) -> list[Hard]:
    """Rows by their number from 1 on, worst first; what they hold only if that was asked for."""
    found = []
    for place in np.argsort(-losses, kind="stable")[:HARDEST].tolist():
        if not with_rows:
            found.append(Hard(place + 1, number(float(losses[place]))))
            continue
        row = _row(X, place)
        values = row if len(row) < 400 else row[:400] + " ..."
        loss = number(float(losses[place]))
        found.append(Hard(place + 1, loss, truth[place], answer[place], values))
    return found


def _row(X: Any, place: int) -> str:
    """One row as text, of a frame with the names of its columns."""
    if not is_frame(X):
        return ", ".join(f"{value:g}" for value in np.asarray(X[place]).ravel()[:40].tolist())
    return ", ".join(f"{name} = {column[place]}" for name, column in frame_columns(X).items())


def importance(estimator: Any, X: Any, y: Any) -> Array:
    """How much the score falls where one column is shuffled, by scikit-learn, column by column."""
    codes = np.asarray(rows_to_predict(estimator, X, estimator.model_), dtype=np.float64)
    some = np.random.default_rng(0).permutation(len(codes))[:IMPORTANCE_ROWS]
    found = permutation_importance(
        estimator,
        codes[some],
        np.asarray(y)[some],
        scoring=_score_of_codes,
        n_repeats=REPEATS,
        random_state=0,
    )
    means: Array = found.importances_mean
    return means


def _score_of_codes(estimator: Any, codes: Array, y: NDArray[Any]) -> float:
    """The estimator's own score, for rows whose text and dates are numbers already."""
    said = estimator.objective_.decode(estimator.model_.outputs(codes).numpy())
    if isinstance(estimator.objective_, Numbers):
        return float(r2_score(y, said))
    return float((said == y).mean())


def importance_chart(names: Sequence[str], falls: Array, most: int = 20) -> Markup:
    """The columns that matter most."""
    order = np.argsort(-falls)[:most]
    top = max(float(falls.max()), 1e-12)
    told = [(names[i], float(falls[i]) / top, number(float(falls[i]))) for i in order]
    return bars("What the score loses when a column is shuffled", told)
