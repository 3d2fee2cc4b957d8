"""Options of a command in a TOML file, and a file of those that were used."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.errors import ConfigError
from protopinv.files import replacing

# Of these a file has nothing to say.
APART = ("config", "save_config", "help")


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options in a file for defaults; what the command line says comes before them."""
    if path is not None and not context.resilient_parsing:
        context.default_map = {**(context.default_map or {}), **_defaults(context, path)}
    return path


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_read,
        help="A TOML file of options by their names; those given here too win over it.",
    ),
]
SaveConfig = Annotated[
    Path | None,
    typer.Option(help="Write all options of this command to a file that --config reads."),
]


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
    found = {}
    for parameter in context.command.params:
        if parameter.name not in APART:
            long = [option for option in parameter.opts if option.startswith("--")]
            found[long[0][2:] if long else parameter.opts[0]] = parameter
    return found


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
        defaults[options[key].name] = _given(options[key], value, f"{name} in {path}")
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


def _given(parameter: Any, value: Any, where: str) -> Any:
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
