"""protopinv data: the named sets, where they are, and how to get them."""

from typing import Annotated

import typer

from protopinv.cli.options import AsJson
from protopinv.cli.output import answer, show
from protopinv.errors import ConfigError


def data(
    name: Annotated[str | None, typer.Argument(help="A set to fetch, unless it is there.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the named data sets and where they are, or fetch one.

    Files are looked for in the folder that PROTOPINV_DATA names, in the user's cache, and where
    Debian's packages put them. What is fetched goes to the cache, and is verified.
    """
    from protopinv.data import NAMED, load_data
    from protopinv.data.sources import named_sets

    if name is None:
        sets = named_sets()
        if as_json:
            told = [
                {"name": each.name, "found": each.found, "looked_in": each.places} for each in sets
            ]
            answer({"sets": told}, as_json=True)
            return
        answer({each.name: each.found or "not here" for each in sets}, as_json=False)
        print()
        show(f"looked in: {', '.join(place for each in sets for place in each.places)}")
        return
    if name not in NAMED:
        raise ConfigError(
            f"A named set is one of {', '.join(NAMED)}. Got {name!r}. Choose one of these."
        )
    training, test = load_data(name, split="train"), load_data(name, split="test")
    found = next(each.found for each in named_sets() if each.name == name)
    values = {
        "data": name,
        "found": found,
        "training_rows": len(training.X),
        "test_rows": len(test.X),
        "features": training.X.shape[1],
    }
    answer(values, as_json=as_json)
