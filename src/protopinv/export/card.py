"""A model card: what a model is, in Markdown, as repositories of models show it."""

import json
from collections.abc import Sequence
from typing import Any

from protopinv.export.description import describe
from protopinv.export.text import markdown_text, rendered
from protopinv.model import Model

PIPELINES = {
    "classification": "tabular-classification",
    "multi-label": "tabular-classification",
    "regression": "tabular-regression",
}
# Longer lists are cut.
MOST_NAMES = 50


def card(model: Model, name: str, version: str) -> str:
    """Markdown with the YAML front matter of Hugging Face: data, measures, sizes, use."""
    front = {
        "library_name": "protopinv",
        "pipeline_tag": PIPELINES[model.task],
        "tags": ["protopinv", "tabular", model.task],
    }
    names, description = model.feature_names, describe(model)
    return rendered(
        "protopinv.export",
        "card.md",
        name=name,
        version=version,
        model=model,
        front={key: json.dumps(value) for key, value in front.items()},  # JSON is YAML
        columns=[] if model.table is None else model.table.columns[:MOST_NAMES],
        names=None if names is None or model.table is not None else _listed(names),
        classes=_listed(model.classes.tolist()) if model.task == "classification" else None,
        operations=description.operations,
        is_bounded=description.bounds is not None,
    )


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(markdown_text(str(name)) for name in names[:MOST_NAMES])
    return shown + (f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
