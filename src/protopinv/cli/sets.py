"""protopinv demo and data: rows that everybody has, or can get."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from protopinv.cli.options import AsJson
from protopinv.cli.output import answer, leave, say, show
from protopinv.errors import ConfigError

if TYPE_CHECKING:
    from protopinv.estimators import ProtoPINVClassifier

SHADES = " .:-=+*#%@"
SIDE = 8
N_DRAWN = 5


def demo(as_json: AsJson = False) -> None:
    """Watch a network train on handwritten digits."""
    say("Loading torch and 1,797 handwritten digits ...")
    from protopinv import ProtoPINVClassifier, evaluation
    from protopinv.data import load_data

    training, test = load_data("digits", split="train"), load_data("digits", split="test")
    estimator = ProtoPINVClassifier(scaling="global", input_noise=0.4, random_state=0, verbose=1)
    estimator.fit(training.X, training.y)
    result = evaluation.evaluate(estimator, test.X, test.y)
    if not as_json:
        print(f"\n{_drawn(estimator, test.X[:N_DRAWN])}\n")
    values: dict[str, Any] = {
        "accuracy": result.accuracy,
        "test_rows": result.n_rows,
        "training_rows": len(training.X),
        "epochs": estimator.n_iter_,
        "seconds": estimator.history_.seconds,
        "trained_numbers": estimator.bank_.n_trained,
        "shipped_numbers": estimator.n_shipped_,
    }
    if as_json:
        values["confusion"] = result.confusion
    answer(values, as_json=as_json)
    leave(interrupted=estimator.history_.ending == "interrupted")


def _drawn(estimator: "ProtoPINVClassifier", X: Any) -> str:
    """Digits side by side as shaded characters, and the prediction under each."""
    levels = (X / X.max() * (len(SHADES) - 1)).astype(int).reshape(-1, SIDE, SIDE)
    lines = [
        "   ".join("".join(SHADES[level] * 2 for level in picture[row]) for picture in levels)
        for row in range(SIDE)
    ]
    predictions = zip(estimator.predict(X), estimator.predict_proba(X).max(axis=1), strict=True)
    words = "   ".join(f"{f'{label}  ({sure:.1%})':^{2 * SIDE}}" for label, sure in predictions)
    return "\n".join([*lines, "", words])


def data(
    name: Annotated[str | None, typer.Argument(help="A set to fetch, unless it is there.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the named data sets and where they are, or fetch one.

    Files are looked for in the folder that PROTOPINV_DATA names, in the user's cache, and where
    Debian's packages put them. What is fetched goes to the cache, and is verified.
    """
    from protopinv.data import NAMED, load_data

    if name is None and as_json:
        answer({"sets": _named_sets()}, as_json=True)
    elif name is None:
        sets = _named_sets()
        answer({each["name"]: each["found"] or "not here" for each in sets}, as_json=False)
        print()
        show(f"looked in: {', '.join(place for each in sets for place in each['looked_in'])}")
    elif name not in NAMED:
        raise ConfigError(
            f"A named set is one of {', '.join(NAMED)}. Got {name!r}. Choose one of these."
        )
    else:
        training, test = load_data(name, split="train"), load_data(name, split="test")
        values = {
            "data": name,
            "found": next(each["found"] for each in _named_sets() if each["name"] == name),
            "training_rows": len(training.X),
            "test_rows": len(test.X),
            "features": training.X.shape[1],
        }
        answer(values, as_json=as_json)


def _named_sets() -> list[dict[str, Any]]:
    """Every named set: where it is, or None, and where it is looked for. Nothing is fetched."""
    from protopinv.data.images import IMAGES, folder_of, places

    sets = [(name, folder_of(images), places(images)) for name, images in IMAGES.items()]
    return [
        {"name": "digits", "found": "in scikit-learn", "looked_in": []},
        *(
            {"name": name, "found": folder and str(folder), "looked_in": [*map(str, looked_in)]}
            for name, folder, looked_in in sets
        ),
    ]
