"""protopinv evaluate: how good a model is on rows it has not seen."""

from dataclasses import asdict

from protopinv.cli.options import AsJson, Data, Device, ModelPath, Target
from protopinv.cli.output import answer


def evaluate(
    model: ModelPath,
    data: Data,
    target: Target = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with known targets.

    DATA is a table with a --target column, or a named set (its test split).
    """
    from protopinv import estimators
    from protopinv.cli.rows import model_at, rows_for

    estimator = model_at(model).set_params(device=device)
    rows = rows_for(estimator, data, target, needs_target=True)
    result = estimators.evaluate(estimator, rows.X, rows.y)
    if as_json:
        answer({"data": rows.name, **asdict(result)}, as_json=True)
        return
    summary = {"accuracy": result.accuracy, "log_loss": result.log_loss, "rows": result.n_rows}
    answer({"data": rows.name, **summary}, as_json=False)
    print(f"\n{'class':<20} {'precision':>9} {'recall':>9} {'f1':>9} {'rows':>9}")
    for score in result.per_class:
        numbers = f"{score.precision:9.4f} {score.recall:9.4f} {score.f1:9.4f} {score.n_rows:9,}"
        print(f"{score.label!s:<20} {numbers}")
