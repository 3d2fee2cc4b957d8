"""Options shared by commands; the hyperparameters are read off TrainConfig, not written again."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from protopinv.errors import ConfigError
from protopinv.train.config import AUTO, TrainConfig

Data = Annotated[
    str,
    typer.Argument(
        help="A CSV, Parquet or Arrow file, - for a CSV on stdin, or digits, mnist, fashion-mnist."
    ),
]
TrainData = Annotated[
    str,
    typer.Argument(
        help="A CSV, Parquet or Arrow file, a folder of such files, - for a CSV on stdin, or "
        "digits, mnist, fashion-mnist."
    ),
]
ModelPath = Annotated[str, typer.Argument(help="A file written by 'protopinv train'.")]
Target = Annotated[
    str | None,
    typer.Option(help="The column to predict, for a table; several with commas."),
]
KnownTarget = Annotated[
    str | None,
    typer.Option(
        help="The column to predict, for a table; several with commas. Default: as in training."
    ),
]
Weight = Annotated[
    str | None, typer.Option(help="The column that says what each row counts, for a table.")
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Columns to leave out, several with commas; may be repeated."),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Columns of numbers that are names of things; several with commas."),
]
Separator = Annotated[
    str | None,
    typer.Option(help="What stands between the fields of a CSV file; tab for tabs. Default: seen."),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="How a CSV file is encoded, such as cp1252. Default: UTF-8 if it can be."),
]
WithExamples = Annotated[
    bool,
    typer.Option(
        "--with-examples",
        help="Store up to 32 training rows in the model file, to check a loaded model on.",
    ),
]
Verbose = Annotated[
    bool | None,
    typer.Option("--verbose/--quiet", help="Show progress; default: in a terminal."),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The model file.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, or cuda:1.")]


def with_hyperparameters(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` an option for every field of TrainConfig, gathered in its ``**``."""
    own = [p for p in inspect.signature(command).parameters.values() if p.kind != p.VAR_KEYWORD]
    added = []
    for item in fields(TrainConfig):
        plain = _is_plain(item)
        default = item.default
        kind = _with_auto(item.type) if plain and item.metadata["auto"] else item.type
        added.append(
            inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default if plain else _to_text(default),
                annotation=Annotated[
                    kind if plain else str, typer.Option(help=item.metadata["help"])
                ],
            )
        )
    parameters = [*own, *added]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def listed(options: Sequence[str] | None) -> list[str]:
    """Names given with commas, or by an option that is repeated."""
    return [part.strip() for each in options or () for part in each.split(",") if part.strip()]


def parse_hyperparameters(options: dict[str, Any]) -> dict[str, Any]:
    """Texts such as "256,128", "none" or "true,false" as the values they stand for."""
    plain = {item.name: _is_plain(item) for item in fields(TrainConfig)}
    return {
        name: value if plain[name] else _from_text(name, value) for name, value in options.items()
    }


def _is_plain(item: Field[Any]) -> bool:
    """Whether an option is of one type, so that no text has to be read here."""
    if get_origin(item.type) is Literal:
        return True
    return item.type in (int, float, bool) and not item.metadata["auto"]


def _with_auto(kind: Any) -> Any:
    """A choice of words with "auto" among them."""
    return Literal[(AUTO, *get_args(kind))]


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_to_text, value))
    return str(value).lower()


def _from_text(name: str, text: str) -> Any:
    parts = [_one(name, part.strip()) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _one(name: str, text: str) -> Any:
    words = {"none": None, "true": True, "false": False, "auto": "auto", "cross": "cross"}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ConfigError(
        f"--{name.replace('_', '-')} takes numbers or words ({', '.join(words)}), several with "
        f"commas. Got {text!r}. Change it, for example to {_to_text(getattr(TrainConfig, name))}."
    )
