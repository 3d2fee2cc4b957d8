"""Records of what comes one after another, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.continual.river_text import WHO as FOLLOWERS
from benchmarks.continual.river_text import river_tables
from benchmarks.record import Content
from benchmarks.text import markdown, percent

WHO = {
    "ours": "`partial_fit`",
    "recursive ridge": "recursive ridge, 500 random ReLU units",
    "rehearsal": "a fit of 700 stored images and the new rows",
    "fine-tuning": "fine-tuning, no memory",
    "joint": "a fit of all rows at once",
}


def cells(record: Content, *start: str) -> list[Mapping[str, Any]]:
    """Those of all seeds under this name."""
    prefix = "/".join(start) + "/"
    return [
        cell
        for key, cell in record["cells"].items()
        if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
    ]


def names(record: Content, place: int) -> list[str]:
    """All that stand at this place of the names of cells, in order."""
    return list(dict.fromkeys(key.split("/")[place] for key in record["cells"]))


def scores(some: Sequence[Mapping[str, Any]], name: str = "accuracy") -> str:
    """Mean and deviation over seeds, in percent."""
    return str(percent([cell[name] for cell in some])) if some else "-"


def classes_table(record: Content) -> list[str]:
    """Final accuracy by contestant, and what each keeps."""
    places = list(dict.fromkeys("/".join(key.split("/")[:2]) for key in record["cells"]))
    rows = []
    for name in names(record, 2):
        stored = max(
            (c["stored"] for place in places for c in cells(record, place, name)), default=0
        )
        row = [scores(cells(record, *place.split("/"), name)) for place in places]
        rows.append([WHO.get(name, name), *row, f"{stored:,}" if stored else "-"])
    return markdown(["", *(place.replace("/", ", ") for place in places), "numbers kept"], rows)


def defaults_table(record: Content) -> list[str]:
    """Final accuracy of a model whose user sets nothing, and what it is behind one fit."""
    rows = []
    for name in names(record, 0):
        ours, joint = (cells(record, name, who) for who in ("ours", "joint"))
        behind = [b["accuracy"] - a["accuracy"] for a, b in zip(ours, joint, strict=True)]
        rows.append([name, scores(ours), scores(joint), str(percent(behind))])
    return markdown(["two classes at a time", "`partial_fit`", "one fit", "behind"], rows)


def rows_table(record: Content) -> list[str]:
    """A tenth more rows, and small calls, next to a fit of all."""
    rows = []
    for dataset in names(record, 0):
        for name in ("a tenth more", "a tenth more by default"):
            more = cells(record, dataset, name)
            if not more:
                continue
            is_default = name.endswith("default")
            columns = [scores(more, each) for each in ("before", "updated", "refit")]
            cost = percent([cell["cost"] for cell in more])
            calls = "" if is_default else scores(cells(record, dataset, "small calls"))
            title = f"{dataset}, by default" if is_default else f'{dataset}, `effort="quick"`'
            rows.append([title, *columns, f"{cost} %", calls])
    header = [
        "",
        "10/11 of the rows",
        "and the rest",
        "all at once",
        "cost of the rest",
        "50 calls",
    ]
    return markdown(header, rows)


def stages_table(record: Content) -> list[str]:
    """Accuracy over all stages at the end."""
    datasets = names(record, 0)
    rows = [
        [WHO.get(name, name), *(scores(cells(record, dataset, name)) for dataset in datasets)]
        for name in names(record, 1)
    ]
    return markdown(["", *datasets], rows)


def drift_table(record: Content) -> list[str]:
    """Accuracy over the whole stream, each batch predicted before it is learned."""
    rows = [[FOLLOWERS[name], scores(cells(record, name))] for name in names(record, 0)]
    return markdown(["", "accuracy"], rows)


def tried_table(record: Content) -> list[str]:
    """Held-out accuracy of every variant."""
    datasets = names(record, 0)
    rows = []
    for name in names(record, 1):
        by_dataset = [cells(record, dataset, name) for dataset in datasets]
        stored = max((cell["stored"] for each in by_dataset for cell in each), default=0)
        rows.append([name, *map(scores, by_dataset), f"{stored:,}" if stored else "-"])
    return markdown(["", *datasets, "numbers kept"], rows)


TABLES = {
    "classes": classes_table,
    "defaults": defaults_table,
    "rows": rows_table,
    "domains": stages_table,
    "drift": drift_table,
    "drift-river": river_tables,
    "tried": tried_table,
}
