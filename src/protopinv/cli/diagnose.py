"""protopinv diagnose: how well conditioned a model's solves are."""

from dataclasses import asdict

from protopinv.cli.options import AsJson, ModelPath
from protopinv.cli.output import answer


def diagnose(model: ModelPath, as_json: AsJson = False) -> None:
    """Show conditioning and sensitivity of every layer's solve.

    The condition is that of the prototype matrix, and of the ridge system solved from it. The
    sensitivities say how far the weights move, at most, when inputs or targets of the prototypes
    or the ridge move by one; the share of the bound says how much of that a small random move
    makes use of.
    """
    from protopinv.cli.rows import model_at

    estimator = model_at(model)
    diagnosis, moved = estimator.diagnose(), estimator.check_lemma()
    if as_json:
        perturbed = [asdict(layer) for layer in moved]
        answer({"model": model, **asdict(diagnosis), "perturbed": perturbed}, as_json=True)
        return
    for number, (layer, change) in enumerate(zip(diagnosis.layers, moved, strict=True), 1):
        if number > 1:
            print()
        answer(
            {
                "layer": number,
                "ridge": layer.ridge,
                "largest_singular_value": layer.singular_values[0],
                "smallest_singular_value": layer.singular_values[-1],
                "condition": layer.condition,
                "system_condition": layer.system_condition,
                "effective_rank": layer.effective_rank,
                "system_effective_rank": layer.system_effective_rank,
                "degrees_of_freedom": layer.degrees_of_freedom,
                "sensitivity_to_inputs": layer.sensitivity.to_inputs,
                "sensitivity_to_targets": layer.sensitivity.to_targets,
                "sensitivity_to_ridge": layer.sensitivity.to_ridge,
                "share_of_the_bound": change.change / change.bound,
            },
            as_json=False,
        )
