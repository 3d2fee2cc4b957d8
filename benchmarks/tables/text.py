"""The contest on public tables, as text."""

from collections.abc import Iterator, Sequence

from benchmarks.record import Content
from benchmarks.tables.contest import TASKS
from benchmarks.tables.contestants import REFERENCE
from benchmarks.tables.duels import duels, seconds_of
from benchmarks.tables.scoring import LOWER_IS_BETTER, MEASURES
from benchmarks.tables.standings import (
    BANDS,
    Field,
    Result,
    Standing,
    critical_difference,
    field_of,
    log_losses,
    results,
    standings,
)
from benchmarks.tables.suite import Task
from benchmarks.text import markdown, readable

NAMES = {
    "accuracy": "accuracy, %",
    "balanced_accuracy": "balanced accuracy, %",
    "log_loss": "log loss",
    "roc_auc": "ROC AUC, %",
    "r2": "R2, %",
    "rmse": "RMSE",
    "micro_f1": "micro-F1, %",
    "macro_f1": "macro-F1, %",
}
ALL = "all classes"
OUTPUTS: dict[Task, str] = {
    "classification": "classes",
    "regression": "targets",
    "multi-label": "labels",
}


def contest_tables(record: Content) -> list[str]:
    """All tables of a contest, task by task."""
    every = results(record)
    against = reference_of(record["plan"]["contestants"])
    lines: list[str] = []
    for task in tasks_of(every):
        lines += [f"{task}:", "", *standings_table(field_of(every, task), against), ""]
        lines += [*bands_table(every, task), "", *each_table(every, task), ""]
    if losses := log_loss_table(every):
        lines += [*losses, ""]
    return [*lines, *absence_lines(every)]


def frame_tables(record: Content) -> list[str]:
    """All tables of a contest on frames: what each frame is scored by, then who wins, and times."""
    every, plan = results(record), record["plan"]
    against = reference_of(plan["contestants"])
    lines: list[str] = []
    for title, inside, measures in _views(every):
        for measure in measures:
            field = field_of(inside, inside[0].task, measure=measure)
            lines += [f"{title}, {NAMES[measure]}, frames: {len(field.tables)}", ""]
            lines += [*duels_table(field, against), ""]
        if title != ALL:
            lines += [*each_table(inside, inside[0].task, measures[0]), ""]
    lines += [*times_table(every, plan["contestants"], against), ""]
    absent = [
        f"- {who} was left out: {what} is not installed." for who, what in plan["missing"].items()
    ]
    return [*lines, *absent, *absence_lines(every)]


def _views(every: Sequence[Result]) -> Iterator[tuple[str, list[Result], Sequence[str]]]:
    """Titles with the results and measures below them; log losses of one set are shown once."""
    classes = [result for result in every if result.task == "classification"]
    several = [result for result in classes if result.outputs > 2]
    views: dict[str, tuple[list[Result], tuple[str, ...]]] = {
        "two classes": ([r for r in classes if r.outputs == 2], ("roc_auc",)),
        "more classes": (several, ("log_loss",)),
        ALL: (classes, ("accuracy",) if several == classes else ("accuracy", "log_loss")),
        "numbers": ([r for r in every if r.task == "regression"], ("rmse", "r2")),
    }
    return ((title, *view) for title, view in views.items() if view[0])


def duels_table(field: Field, against: str) -> list[str]:
    """Every contestant against the reference at the frames where both were."""
    rows = []
    for duel in duels(field, against):
        shown = [duel.name, _number(duel.mean, "{}", field.measure)]
        shown += [f"{duel.wins} / {duel.level} / {duel.losses}", _number(duel.p, "{:.2g}")]
        if field.measure in LOWER_IS_BETTER:
            spread = "" if duel.interval is None else " [{:.3f}, {:.3f}]".format(*duel.interval)
            shown.append(_number(duel.ratio, "{:.3f}") + spread)
        rows.append(shown)
    header = ["", "mean", f"wins / level / losses to {against}", "p, sign test"]
    ratio = [f"mean ratio to {against} [95 %]"]
    return markdown([*header, *(ratio if field.measure in LOWER_IS_BETTER else [])], rows)


def times_table(every: Sequence[Result], names: Sequence[str], against: str) -> list[str]:
    """Seconds of a fold, over all frames: fits, and predictions for the rows that are scored."""
    base = seconds_of(every, against)
    rows = []
    for name in names:
        fits, tests, n = seconds_of(every, name)
        times = f"{fits / base[0]:.2f}" if n == base[2] and n else "-"
        rows.append([name, _spent(fits), times, _spent(tests), str(n)])
    return markdown(["", "fits", f"times {against}", "predictions", "frames"], rows)


def tasks_of(every: Sequence[Result]) -> list[Task]:
    """The tasks that some table has."""
    return [task for task in TASKS if any(result.task == task for result in every)]


def reference_of(contestants: Sequence[str]) -> str:
    """The reference of comparisons: our defaults, or else the first contestant."""
    return REFERENCE if REFERENCE in contestants else contestants[0]


def standings_table(field: Field, against: str, *, timed: bool = True) -> list[str]:
    """Ranks, scores, who wins against the reference, and times.

    Those are of one fit of every table together, against the reference where both were timed, and
    of predicting a single row.
    """
    rows = []
    for standing in standings(field, against):
        p = "" if standing.p is None else f"{standing.p:.2g}"
        rows.append(
            [
                standing.name,
                _number(standing.mean_rank, "{:.2f}"),
                _number(standing.normalised, "{:.3f}"),
                _number(standing.mean, "{}", field.measure),
                f"{standing.wins} / {standing.level} / {standing.losses}",
                p,
                *(_times(standing, len(field.tables)) if timed else []),
            ]
        )
    header = ["", "mean rank", "normalised", f"mean {NAMES[field.measure]}"]
    header += [f"wins / level / losses to {against}", "p"]
    times = ["all fits", f"times {against}", "a row"]
    return markdown([*header, *(times if timed else [])], rows)


def difference_line(field: Field) -> str:
    """By how much mean ranks must differ."""
    k, n = len(field.ranked), len(field.tables)
    if k < 2 or n < 1:
        return f"{n} tables."
    least = critical_difference(k, n)
    return f"{n} tables; mean ranks that differ by less than {least:.2f} may well be the same."


def bands_table(every: Sequence[Result], task: Task) -> list[str]:
    """Mean ranks by the size of tables; no rank for who stayed away from one of them."""
    fields = {title: field_of(every, task, rows=rows) for title, rows in BANDS.items()}
    fields = {title: field for title, field in fields.items() if field.tables}
    ranks = {title: field.ranks() for title, field in fields.items()}
    rows = []
    for name in field_of(every, task).contestants:
        cells = [
            _number(float(by[name].mean()) if name in by else None, "{:.2f}")
            for by in ranks.values()
        ]
        rows.append([name, *cells])
    header = [f"{title} ({len(field.tables)})" for title, field in fields.items()]
    return markdown(["mean rank", *header], rows)


def log_loss_table(every: Sequence[Result]) -> list[str]:
    """Mean log loss of every contestant, and its worst table against the linear model."""
    rows = [
        [loss.name, f"{loss.mean:.4f}", _number(loss.worst_ratio, "{:.2f}"), loss.worst_table]
        for loss in log_losses(every)
    ]
    header = ["", "mean log loss", "worst ratio to linear", "on"]
    return markdown(header, rows) if rows else []


def each_table(every: Sequence[Result], task: Task, measure: str | None = None) -> list[str]:
    """Every table with every score; an empty cell is explained below."""
    measure = measure or MEASURES[task][0]
    inside = [result for result in every if result.task == task]
    names = list(dict.fromkeys(result.contestant for result in inside))
    by_table: dict[str, dict[str, Result]] = {}
    for result in inside:
        by_table.setdefault(result.table, {})[result.contestant] = result
    rows = []
    for table, by_name in by_table.items():
        first = next(iter(by_name.values()))
        size = f"{first.rows:,} x {first.features}, {first.outputs}"
        cells = [_score(by_name.get(name), measure) for name in names]
        rows.append([table, size, *cells])
    header = [NAMES[measure], f"rows x features, {OUTPUTS[task]}", *names]
    return markdown(header, rows)


def absence_lines(every: Sequence[Result]) -> list[str]:
    """Who has no score where, and why; other conditions; rows and labels that were left out."""
    lines = []
    n_tables = len({result.table for result in every})
    for kind, verb in (("skipped", "stayed away from"), ("error", "failed on"), ("remark", "on")):
        groups: dict[tuple[str, str], list[str]] = {}
        for result in every:
            if reason := getattr(result, kind):
                groups.setdefault((result.contestant, reason), []).append(result.table)
        for (name, reason), tables in groups.items():
            where = ", ".join(tables) if len(tables) < n_tables else "all tables"
            lines.append(f"- {name} {verb} {where}: {reason}.")
    for task in tasks_of(every):
        inside = [result for result in every if result.task == task]
        there = dict.fromkeys(result.table for result in inside)
        for name in dict.fromkeys(result.contestant for result in inside):
            met = {result.table for result in inside if result.contestant == name}
            if missing := [table for table in there if table not in met]:
                lines.append(f"- {name} was not measured on {', '.join(missing)}.")
    rare = {r.table: r for r in every if r.left_out}
    for table, result in rare.items():
        what = "labels" if result.task == "multi-label" else "rows of classes"
        lines.append(f"- {table}: {result.left_out} {what} were too rare for folds.")
    return lines


def _times(standing: Standing, n_tables: int) -> list[str]:
    row = "-" if standing.row_seconds is None else readable(standing.row_seconds)
    times = _number(standing.times, "{:.2f}")
    if 0 < standing.n_timed < n_tables:
        times += f", {standing.n_timed} tables"
    return [_number(standing.seconds, "{:,.1f} s"), times, row]


def _spent(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 10 else readable(seconds)


def _score(result: Result | None, measure: str) -> str:
    if result is None or measure not in result.scores:
        return ""
    return _shown(result.scores[measure], measure)


def _number(value: float | None, form: str, measure: str = "") -> str:
    if value is None:
        return "-"
    return form.format(_shown(value, measure) if measure else value)


def _shown(value: float, measure: str) -> str:
    """Shares in percent, losses as they are."""
    return f"{value:.4f}" if measure in LOWER_IS_BETTER else f"{100 * value:.2f}"
