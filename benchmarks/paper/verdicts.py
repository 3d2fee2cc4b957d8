"""Every claim of the paper (claims.toml) with its verdict, from the newest records."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper import ablation_findings as ablation
from benchmarks.paper import deciding
from benchmarks.paper import table_findings as table
from benchmarks.paper.comparison import Named, different, holm
from benchmarks.paper.deciding import Judgement
from benchmarks.paper.findings import Find, Finding, MissingRecordError, Sources, settled
from benchmarks.record import Content

CLAIMS = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and its place."""

    key: str
    place: str
    quote: str


@dataclass(frozen=True)
class Verdict:
    """A claim, what we say to it, and the numbers."""

    claim: Claim
    judgement: Judgement
    evidence: str


def read_claims() -> list[Claim]:
    """All of them, in the paper's order."""
    listed = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
    return [Claim(key, **content) for key, content in listed.items()]


def shown(judgement: Judgement, test: str, note: str = "") -> Find:
    """What is proved or refuted by a test of the project rather than measured."""
    return lambda _: settled(judgement, f"{note + '; ' if note else ''}`{test}`")


def untested(why: str) -> Find:
    """What cannot be held against anything here."""
    return lambda _: settled("not tested", why)


def _stated(sources: Sources, find: Find) -> Finding:
    try:
        return find(sources)
    except MissingRecordError as missing:
        return settled("not tested", f"there is no record of it yet; `{missing}` makes one")


def verdicts(newest: Mapping[str, Content]) -> list[Verdict]:
    """A verdict for each claim; p-values are corrected for all comparisons of all claims."""
    sources = Sources(newest)
    distinct = list(dict.fromkeys(RULES.values()))
    findings = [_stated(sources, find) for find in distinct]
    corrected = holm([finding.compared for finding in findings])
    every: list[Verdict] = []
    first: dict[Find, str] = {}
    for claim in read_claims():
        find = RULES[claim.key]
        number = distinct.index(find)
        judgement = findings[number].decide(corrected[number])
        evidence = first.get(find) or _evidence(corrected[number], findings[number].note)
        first.setdefault(find, f"as for *{claim.quote}*")
        every.append(Verdict(claim, judgement, evidence))
    return every


def _evidence(compared: Named, note: str) -> str:
    parts = [f"{name} {each}" if name else str(each) for name, each in compared.items()]
    return "; ".join([*parts, *([note] if note else [])])


def n_comparisons(newest: Mapping[str, Content]) -> int:
    """How many comparisons the correction is for."""
    sources = Sources(newest)
    return len(different([_stated(sources, find).compared for find in RULES.values()]))


HIDDEN = ablation.settings(deciding.more, "parts", ("all trained", "hidden fixed"))
DECAYS = ablation.settings(
    deciding.more, "decay", ("two decays, best of 16", "one decay, best of 4")
)
OUTPUT_DECAY = ablation.settings(
    deciding.no_gain,
    "output-decay",
    ("T = 0, decay, best of 3", "T = 0, no decay"),
    ("T = 1, decay, best of 3", "T = 1, no decay"),
)
OURS = table.reaches("protopinv")
SOLVER = shown("wrong", "test_the_listings_solver_is_not_a_cholesky")
DERIVATIVE = shown("wrong", "test_the_derivative_has_one_more_inverse")
BACK_PROJECTION = "test_back_projection_carries_the_mean_with_a_minus"
EXACT = "test_derivative_is_exact_in_design_target_and_ridge"
C1 = shown("wrong", "test_c1_does_not_grow_with_kappa")

RULES: dict[str, Find] = {
    "abstract-accuracy": OURS,
    "abstract-time": table.other_gpu("protopinv"),
    "abstract-size": table.number_of_parameters,
    "abstract-theory": ablation.kappa_predicts,
    "abstract-elm": table.ahead_of("elm-10200", "elm-128"),
    "abstract-rf": table.ahead_of("random-features-10200", "random-features-128"),
    "abstract-mlp": table.ahead_of("mlp-165", "mlp-336"),
    "introduction-bp": table.back_propagation_costs,
    "introduction-elm": table.analytic_methods,
    "introduction-hidden": HIDDEN,
    "contribution-layers": ablation.settings(
        deciding.no_loss, "depth", ("2 x 256", "1 x 256"), ("3 x 256", "1 x 256")
    ),
    "contribution-complexity": table.independent_of_rows,
    "contribution-gpu": untested(
        "there is no RTX 5060 here; the trade-offs are judged where the abstract names them"
    ),
    "background-stable": table.positive_ridge,
    "background-differentiable": shown("confirmed", EXACT),
    "background-cholesky": SOLVER,
    "background-autodiff": shown(
        "confirmed", "test_derivative_equals_autograd_through_a_plain_solve"
    ),
    "background-derivative": DERIVATIVE,
    "method-prediction": shown("wrong", "test_the_activation_is_applied_once"),
    "method-penalty": ablation.settings(
        deciding.may_be_more,
        "penalty",
        *((str(value), "0.0") for value in (1e-7, 1e-6, 1e-5, 1e-4)),
        note="judged is whether any penalty adds to what the ridges do",
    ),
    "method-temperature": ablation.settings(
        deciding.no_loss,
        "temperature",
        ("0.1", "0.0"),
        ("1.0", "0.0"),
        ("3.0", "0.0"),
        note="judged is whether a temperature does no harm",
    ),
    "method-balanced": ablation.balanced_start,
    "method-inputs": ablation.settings(
        deciding.no_loss,
        "inputs",
        ("normal", "stratified"),
        note="judged is whether random inputs do as well",
    ),
    "method-decays": DECAYS,
    "method-output-decay": OUTPUT_DECAY,
    "method-pca": ablation.settings(
        deciding.no_loss,
        "projection",
        ("PCA-400", "none"),
        ("PCA-100", "none"),
        ("PLS-400", "none"),
        ("PLS-100", "none"),
        note="judged is whether a projection to few features does no harm",
    ),
    "method-back-projection": shown(
        "confirmed", BACK_PROJECTION, "so it is, with the formula of the errata"
    ),
    "method-complexity": table.independent_of_rows,
    "method-cholesky": table.positive_ridge,
    "method-svd": table.svd_fallback,
    "lemma-c1": C1,
    "lemma-c2": shown(
        "different",
        "test_the_ridge_bounds_lemma_1_whatever_the_smallest_singular_value",
        "holds as a loose bound; 1/(2√λ) does too, for any singular values",
    ),
    "proposition-bound": shown(
        "wrong",
        "test_the_last_term_of_proposition_1_needs_a_bounded_loss",
        "cross-entropy has no bound, and κ is no property of the network",
    ),
    "proposition-kappa": ablation.kappa_predicts,
    "proposition-training": ablation.conditioning_pays,
    "theory-derivative": DERIVATIVE,
    "protocol": untested("how the author proceeded cannot be seen; we proceed in the same way"),
    "baseline-rf": shown("different", "test_random_linear_features_are_a_linear_model"),
    "table-elm": table.reaches("elm-10200"),
    "table-elm-small": table.reaches("elm-128"),
    "table-rf": table.reaches("random-features-10200"),
    "table-rf-small": table.reaches("random-features-128"),
    "table-rf-linear": table.reaches("random-linear-10200"),
    "table-mlp": table.reaches("mlp-165"),
    "table-ours": OURS,
    "table-times": table.other_gpu("elm-10200", "random-features-10200", "mlp-165", "protopinv"),
    "ablation-prototypes": ablation.more_prototypes_on_mnist,
    "ablation-prototypes-fashion": ablation.more_prototypes_on_fashion,
    "ablation-width": ablation.width,
    "ablation-ridge": ablation.learned_last_ridge,
    "ablation-first-ridge": ablation.first_ridge,
    "ablation-schedule": ablation.time_to_best,
    "ablation-dropout-smooths": ablation.dropout_smooths,
    "ablation-dropout-hurts": ablation.dropout_hurts,
    "ablation-decays": DECAYS,
    "ablation-output-decay": OUTPUT_DECAY,
    "ablation-allocation": ablation.allocation,
    "listing-cholesky": SOLVER,
    "listing-step": shown("wrong", "test_the_listing_overwrites_what_it_calls_next"),
    "tips-float32": table.float32_rows,
    "tips-nan": ablation.steps_skipped,
    "tips-normalise": ablation.settings(
        deciding.may_be_more,
        "normalise",
        ("True", "False"),
        note="judged is whether it adds anything",
    ),
    "discussion-frontier": table.frontier,
    "discussion-device": table.on_device,
    "limits-stems": table.stems,
    "limits-depth": ablation.depth,
    "limits-few": ablation.few_prototypes,
    "conclusion": HIDDEN,
    "future-continual": untested("no figure is claimed, and none of this study is about it"),
    "future-tasks": untested(
        "no figure is claimed; regression and several labels are in the library, and the page on "
        "accuracy has their contests"
    ),
    "future-bounds": untested("no figure is claimed"),
    "appendix-stability": C1,
    "appendix-ridge": shown("confirmed", EXACT),
    "appendix-softplus": shown(
        "confirmed", "test_ridge_begins_at_what_was_asked_for_large_and_tiny"
    ),
    "appendix-back-projection": shown("wrong", BACK_PROJECTION),
    "extended-balanced": ablation.balanced_start,
    "extended-allocation": ablation.allocation,
    "extended-dropout": ablation.dropout_hurts_fashion,
    "extended-dropout-smooths": ablation.dropout_smooths,
    "extended-decays": DECAYS,
    "extended-output-decay": OUTPUT_DECAY,
    "checklist-solves": SOLVER,
}
