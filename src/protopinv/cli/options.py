"""Options shared by commands, and files of options.

The hyperparameters are read off TrainConfig, not written again.
"""

import difflib
import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from protopinv.errors import ConfigError
from protopinv.files import replacing
from protopinv.train.config import AUTO, TrainConfig

# A file of options has nothing to say of these.
NOT_IN_FILES = ("config", "save_config", "help")


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options in a file for defaults; what the command line says comes before them."""
    if path is not None and not context.resilient_parsing:
        context.default_map = {**(context.default_map or {}), **_defaults(context, path)}
    return path


DataPath = Annotated[
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
MissingTarget = Annotated[
    Literal["drop", "error"],
    typer.Option(help="Rows of a table without a target: drop leaves them out and counts them."),
]
Separator = Annotated[
    str | None,
    typer.Option(help="What stands between the fields of a CSV file; tab for tabs. Default: seen."),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="How a CSV file is encoded, such as cp1252. Default: UTF-8 if it can be."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, or cuda:1.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_read,
        help="A TOML file of options by their names; those given here too win over it.",
    ),
]


def comma_separated(options: Sequence[str] | None) -> list[str]:
    """Names given with commas, or by an option that is repeated."""
    return [part.strip() for each in options or () for part in each.split(",") if part.strip()]


def separator_of(name: str | None) -> str | None:
    """What stands between the fields of a CSV file, where a user says it."""
    from protopinv.rows.text import check_separator

    separator = {"tab": "\t", "\\t": "\t"}.get(name or "", name)
    check_separator(separator)  # even where the data are no CSV file
    return separator


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` options for the fields of its dataclass ``options`` and of TrainConfig.

    It is called with an instance, whose ``hyperparameters`` are what was said of TrainConfig.
    """
    own = dict(inspect.signature(command).parameters)
    kind = own["options"].annotation
    shared = [item for item in fields(kind) if item.name != "hyperparameters"]
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        added = [_parameter(item.name, item.default, item.type) for item in shared]
        parameters += added if name == "options" else [parameter]
    parameters += map(_hyperparameter, fields(TrainConfig))

    def called(**values: Any) -> None:
        of_config = {f.name: _parsed(f, values.pop(f.name)) for f in fields(TrainConfig)}
        of_kind = {item.name: values.pop(item.name) for item in shared}
        command(**values, options=kind(**of_kind, hyperparameters=of_config))

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    )
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _hyperparameter(item: Field[Any]) -> inspect.Parameter:
    kind = _kind(item)
    default = _as_text(item.default) if kind is str else item.default
    help_ = typer.Option(help=item.metadata["help"])
    return _parameter(item.name, default, Annotated[kind, help_])


def _kind(item: Field[Any]) -> Any:
    """The type of an option; text where a hyperparameter may be of several types."""
    if get_origin(item.type) is Literal:
        return Literal[(AUTO, *get_args(item.type))] if item.metadata["auto"] else item.type
    return item.type if item.type in (int, float, bool) and not item.metadata["auto"] else str


def _parsed(item: Field[Any], value: Any) -> Any:
    """Texts such as "256,128", "none" or "true,false" as the values they stand for."""
    if _kind(item) is not str:
        return value
    parts = [_one(item.name, part.strip()) for part in value.split(",")]
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
        f"commas. Got {text!r}. Change it, for example to {_as_text(getattr(TrainConfig, name))}."
    )


def _as_text(value: Any) -> str:
    return ",".join(map(_as_text, value)) if isinstance(value, tuple) else str(value).lower()


def write_config(context: typer.Context, path: Path, parsed: Mapping[str, Any]) -> None:
    """Every option of this call; of those in ``parsed`` the values that their texts stand for."""
    values = {**context.params, **parsed}
    lines = [
        f"{key} = {_toml(values[parameter.name])}"
        for key, parameter in _options(context).items()
        if values.get(parameter.name) is not None or parameter.name in parsed
    ]
    with replacing(path) as temporary:
        temporary.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _options(context: typer.Context) -> dict[str, Any]:
    """Every option or argument under the name that a file has for it."""
    parameters = [p for p in context.command.params if p.name not in NOT_IN_FILES]
    return {max(p.opts, key=len).removeprefix("--"): p for p in parameters}


def _defaults(context: typer.Context, path: Path) -> dict[str, Any]:
    options, defaults = _options(context), {}
    for name, value in _content(path).items():
        key = name.replace("_", "-")
        if key not in options:
            close = difflib.get_close_matches(key, options, n=1)
            hint = f"Did you mean {close[0]}?" if close else "Remove it."
            raise ConfigError(
                f"A configuration names options of '{context.info_name}'. {path} has {name!r}, "
                f"which is none. {hint}"
            )
        defaults[options[key].name] = _typed(options[key], value, f"{name} in {path}")
    return defaults


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"A configuration must be a file that can be read. {path} cannot ({error.strerror}). "
            "Check the path."
        ) from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(
            f"A configuration must be written in TOML, as in: max-epochs = 50. {path} is not "
            f"({error}). Correct it."
        ) from error


def _typed(parameter: Any, value: Any, where: str) -> Any:
    """A value as the parser takes it from a command line: texts, or a bool for a switch."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ConfigError(f"A switch is true or false. {where} is {value!r}. Change it.")
        return value
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str | bool | int | float) for part in parts):
        raise ConfigError(
            f"An option is a text, a number, true, false, or a list of these. {where} is "
            f"{value!r:.60}. Change it."
        )
    texts = [str(part).lower() if isinstance(part, bool) else str(part) for part in parts]
    return texts if getattr(parameter, "multiple", False) else ",".join(texts)


def _toml(value: Any) -> str:
    """A value of an option in TOML; it has no word for nothing, which options call "none"."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    # texts of JSON are texts of TOML, but for one character that TOML wants escaped
    text = "none" if value is None else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
