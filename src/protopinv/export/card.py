"""A model card: what a model is, in Markdown, as repositories of models show it."""

import json
from collections.abc import Sequence
from typing import Any

from protopinv.export.description import describe
from protopinv.export.text import markdown_text
from protopinv.model import Model

PIPELINES = {
    "classification": "tabular-classification",
    "multi-label": "tabular-classification",
    "regression": "tabular-regression",
}
MEASURES = {"classification": "accuracy", "multi-label": "label accuracy", "regression": "R2"}
# Longer lists are cut.
MOST_NAMES = 50


def card(model: Model, name: str, version: str) -> str:
    """Markdown with the YAML front matter of Hugging Face: data, measures, sizes, use."""
    front = {
        "library_name": "protopinv",
        "pipeline_tag": PIPELINES[model.task],
        "tags": ["protopinv", "tabular", model.task],
    }
    # JSON is YAML
    yaml = [f"{key}: {json.dumps(value)}" for key, value in front.items()]
    lines = ["---", *yaml, "---", "", f"# {markdown_text(name)}", "", *_what(model), ""]
    lines += ["## Data", "", *_data(model), "", "## Training", "", *_training(model), ""]
    lines += ["## Sizes", "", *_sizes(model), "", "## Use", "", *_use(model, version), ""]
    return "\n".join(lines)


def _what(model: Model) -> list[str]:
    sizes = " → ".join(map(str, model.network.sizes))
    return [
        f"A small feed-forward network for {model.task}, layers {sizes}, activation "
        f"{model.network.activation}. Its weights were solved in closed form from a trained bank "
        "of prototypes (Proto-PINV+H)."
    ]


def _names(names: Sequence[Any]) -> str:
    shown = ", ".join(markdown_text(str(name)) for name in names[:MOST_NAMES])
    return shown + (f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _data(model: Model) -> list[str]:
    lines = [f"- features: {model.n_features}"]
    if model.table is not None:
        told = [(column.name, column.story) for column in model.table.columns[:MOST_NAMES]]
        lines += [f"  - {markdown_text(name)}: {markdown_text(story)}" for name, story in told]
    elif model.feature_names is not None:
        lines.append(f"- their names: {_names(model.feature_names)}")
    if model.task == "classification":
        lines.append(f"- classes: {_names(model.classes.tolist())}")
    else:
        lines.append(f"- outputs: {model.network.sizes[-1]}")
    return lines


def _training(model: Model) -> list[str]:
    history = model.history
    ended = markdown_text(history.ending)
    lines = [f"- epochs: {history.n_epochs}, {ended}, {history.seconds:.3g} s"]
    if (score := history.kept_score) is not None:
        lines.append(f"- {MEASURES[model.task]} on rows held out or in folds: {score:.4f}")
    lines.append("- no measure here is of a test set; evaluate the model on rows of your own")
    return lines


def _sizes(model: Model) -> list[str]:
    operations = describe(model).operations
    lines = [
        f"- numbers to predict with: {model.network.n_shipped:,}",
        f"- operations for a row: {operations:,}",
    ]
    if model.bank is not None:
        bank = model.bank
        lines.append(
            f"- trained numbers: {bank.n_trained:,}, in {bank.n_members} banks of "
            f"{bank.n_prototypes} prototypes"
        )
    return lines


def _use(model: Model, version: str) -> list[str]:
    return [
        f"With protopinv {version} or later:",
        "",
        "```python",
        "from protopinv import load",
        "",
        'model = load("model.safetensors")',
        "model.predict(X)",
        "```",
        "",
        "It is meant for rows like those it was trained on. For rows far from them its answers "
        + (
            "are kept near the range of the training targets, and are not to be relied on."
            if getattr(model.objective, "low", None) is not None
            else "may be far off, and seem sure."
        ),
    ]
