"""protopinv demo: a network trains on real digits while you watch."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from protopinv.cli.options import AsJson
from protopinv.cli.output import answer, leave, say

if TYPE_CHECKING:
    from protopinv.estimators import ProtoPINVClassifier

SHADES = " .:-=+*#%@"
SIDE = 8
SHOWN = 5


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
        print(f"\n{_drawn(estimator, test.X[:SHOWN])}\n")
    values: dict[str, Any] = {
        "accuracy": result.accuracy,
        "test_rows": result.n_rows,
        "training_rows": len(training.X),
        "epochs": estimator.n_iter_,
        "seconds": estimator.history_.seconds,
        "trained_numbers": estimator.bank_.n_trained,
        "shipped_numbers": estimator.n_shipped_,
    }
    answer(
        {**values, "confusion": asdict(result)["confusion"]} if as_json else values, as_json=as_json
    )
    leave(interrupted=estimator.history_.ending == "interrupted")


def _drawn(estimator: "ProtoPINVClassifier", X: Any) -> str:
    """Digits side by side as shaded characters, and under each what the network says."""
    levels = (X / X.max() * (len(SHADES) - 1)).astype(int).reshape(-1, SIDE, SIDE)
    lines = [
        "   ".join("".join(SHADES[level] * 2 for level in picture[row]) for picture in levels)
        for row in range(SIDE)
    ]
    answers = zip(estimator.predict(X), estimator.predict_proba(X).max(axis=1), strict=True)
    says = "   ".join(f"{f'{label}  ({sure:.1%})':^{2 * SIDE}}" for label, sure in answers)
    return "\n".join([*lines, "", says])
