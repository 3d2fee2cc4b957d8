"""What was known is kept, what is new is learned, and bad input changes nothing."""

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from protopinv import ArrayRows, ImageCopies, ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ConfigError, DataError, ModelFileError
from protopinv.model import merged_network

QUICK = {"effort": "quick", "max_epochs": 40, "random_state": 0, "device": "cpu"}


def quick(**options: object) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**{**QUICK, **options})


@pytest.fixture(scope="module")
def five() -> tuple[np.ndarray, np.ndarray]:
    """Five classes on a circle, in six features."""
    rng = np.random.default_rng(0)
    y = np.arange(1_000) % 5
    centres = 4 * np.stack([np.cos(y * 1.2566), np.sin(y * 1.2566)], 1)
    X = np.concatenate([centres, np.zeros((1_000, 4))], 1) + rng.normal(size=(1_000, 6))
    return X, y


@pytest.fixture(scope="module")
def fitted(five) -> ProtoPINVClassifier:
    X, y = five
    return quick().fit(X[y < 3], y[y < 3])


@pytest.fixture(scope="module")
def of_all(five) -> ProtoPINVClassifier:
    return quick().fit(*five)


@pytest.fixture(scope="module")
def of_half(five) -> ProtoPINVClassifier:
    X, y = five
    return quick(max_epochs="auto").fit(X[:500], y[:500])


def reloaded(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    return load(tmp_path / "model.safetensors")


def test_new_classes_are_learned_and_old_ones_kept(five, fitted) -> None:
    X, y = five
    model = copy(fitted)
    before = model.score(X[y < 3], y[y < 3])
    for label in (3, 4):
        model.partial_fit(X[y == label], y[y == label])
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert model.score(X, y) > 0.9
    assert model.score(X[y < 3], y[y < 3]) > before - 0.08
    assert model.bank_.n_prototypes == fitted.bank_.n_prototypes + 20
    assert model.predict_proba(X).shape == (1_000, 5)


def test_classes_stay_sorted_in_whatever_order_they_come(five) -> None:
    X, y = five
    names = np.array(["e", "c", "a", "d", "b"], dtype=object)[y]
    model = quick()
    for labels in ("ed", "b", "ca"):
        chosen = np.isin(names, list(labels))
        model.partial_fit(X[chosen], names[chosen])
    assert model.classes_.tolist() == list("abcde")
    best = model.classes_[model.predict_proba(X).argmax(1)]
    assert (best == model.predict(X)).all()
    assert (best == names).mean() > 0.85


def test_texts_of_any_width_are_saved(five, tmp_path) -> None:
    X, y = five
    model = quick().fit(X[y < 2], y[y < 2].astype("<U30"))
    model.partial_fit(X[y == 2], np.full(200, "a longer name"))
    assert reloaded(model, tmp_path).classes_.tolist() == ["0", "1", "a longer name"]
    model.forget("a longer name")
    assert reloaded(model, tmp_path).classes_.tolist() == ["0", "1"]


def test_more_rows_of_known_classes_help_and_cost_little(five) -> None:
    X, y = five
    model = quick().fit(X[:60], y[:60])
    epochs, prototypes = model.n_iter_, model.bank_.n_prototypes
    before = model.score(X[500:], y[500:])
    for start in range(60, 500, 110):
        model.partial_fit(X[start : start + 110], y[start : start + 110])
    assert model.score(X[500:], y[500:]) >= before - 0.01
    assert model.n_iter_ < epochs
    assert model.bank_.n_prototypes == prototypes
    assert model.memory_.gaussians.rows.sum() == 500


def test_a_loaded_model_goes_on_as_the_saved_one_does(five, fitted, tmp_path) -> None:
    X, y = five
    one, other = (reloaded(fitted, tmp_path) for _ in range(2))
    other = reloaded(other.freeze(3), tmp_path)
    assert other.model_.n_frozen == 3
    other.freeze(0)
    for model in (one, other):
        model.partial_fit(X[y > 2], y[y > 2])
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_a_mean_over_calls_is_saved_with_where_it_goes_on_from(five, fitted, tmp_path) -> None:
    X, y = five
    X, y = X[y < 3], y[y < 3]
    model = reloaded(fitted, tmp_path)
    for start in (0, 100, 200):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert model.model_.last_bank is not None
    again = reloaded(model, tmp_path)
    for each in (model, again):
        each.partial_fit(X[300:400], y[300:400])
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.model_.n_calls == again.model_.n_calls


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.grow(1),
        lambda m: m.prune(9),
        lambda m: m.freeze(2),
        lambda m: m.forget(2),
        lambda m: m.partial_fit(np.ones((20, 6)), np.full(20, 7)),
    ],
    ids=["grow", "prune", "freeze", "forget", "a new class"],
)
def test_what_changes_a_bank_ends_the_mean(five, fitted, change) -> None:
    X, y = five
    X, y = X[y < 3], y[y < 3]
    model = copy(fitted)
    for start in (0, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert model.model_.last_bank is not None
    change(model)
    assert model.model_.last_bank is None


def test_known_classes_that_come_one_at_a_time_do_not_drive_out_the_others(five) -> None:
    X, y = five
    model = quick().fit(X[:500], y[:500])
    before = model.score(X[500:], y[500:])
    for label in (0, 1, 2, 3, 4):
        chosen = y[:500] == label
        model.partial_fit(X[:500][chosen], y[:500][chosen])
    assert model.score(X[500:], y[500:]) > before - 0.03


@pytest.mark.parametrize(("shift", "factor"), [(10, 1), (-3, 5)])
def test_rows_from_elsewhere_are_learned_beside_those_before(five, of_half, shift, factor) -> None:
    X, y = five
    moved = factor * X + shift * X.std(0)
    model = copy(of_half)
    before = model.score(X[500:], y[500:])
    model.partial_fit(moved[:500], y[:500])
    assert model.score(moved[500:], y[500:]) > 0.8
    assert model.score(X[500:], y[500:]) > before - 0.1


def test_a_file_without_memory_predicts_and_says_why_it_cannot_go_on(
    five, fitted, tmp_path
) -> None:
    X, y = five
    path = tmp_path / "small.safetensors"
    fitted.save(path, memory=False)
    small = load(path)
    np.testing.assert_array_equal(small.predict(X), fitted.predict(X))
    for model in (small, quick(memory=0).fit(X, y)):
        with pytest.raises(ModelFileError, match=r"needs the memory of a model"):
            model.partial_fit(X, y)


def test_the_first_call_is_a_fit(five, of_all) -> None:
    X, y = five
    begun = quick().partial_fit(X, y)
    np.testing.assert_array_equal(of_all.predict_proba(X), begun.predict_proba(X))


def test_classes_that_are_announced_have_columns_from_the_start(five) -> None:
    X, y = five
    model = quick().partial_fit(X[y == 2], y[y == 2], classes=[4, 2, 0])
    assert model.classes_.tolist() == [0, 2, 4]
    assert (model.predict(X[y == 2]) == 2).all()
    for label in (0, 4):
        model.partial_fit(X[y == label], y[y == label])
    known = np.isin(y, [0, 2, 4])
    assert model.score(X[known], y[known]) > 0.9
    with pytest.raises(DataError, match=r"listed all classes: 0, 2, 4\. y holds 1"):
        model.partial_fit(X[y == 1], y[y == 1])
    model.partial_fit(X[y == 1], y[y == 1], classes=[1])
    assert model.classes_.tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:, :4], y), r"X has 4 features.* expecting 6"),
        (lambda X, y: (X, y[:-1]), r"inconsistent numbers of samples"),
        (lambda X, y: (X, y.astype(str)), r"Labels must be of one kind"),
        (lambda X, y: (X, y + 0.5), r"Unknown label type|continuous"),
        (lambda X, y: (X, np.eye(5, dtype=int)[y]), r"one class a row\. y has 5 columns"),
        (lambda X, y: (np.where(X > 3, np.inf, X), y), r"infinity"),
        (lambda X, y: (X, y, [0, 1]), r"must list every class of y"),
        (lambda X, y: (X, y, None, -np.ones(len(y))), r"Weights of rows must be 0 or more"),
    ],
    ids=["features", "rows", "kind", "numbers", "labels", "infinity", "classes", "weights"],
)
def test_bad_input_is_refused_and_the_model_stays(five, fitted, change, message: str) -> None:
    X, y = five
    before, attributes = fitted.predict_proba(X), dict(vars(fitted))
    with pytest.raises(DataError, match=message):
        fitted.partial_fit(*change(X, y))
    assert vars(fitted) == attributes
    np.testing.assert_array_equal(fitted.predict_proba(X), before)


@pytest.mark.parametrize("decay", [-0.1, 1.0, "much"])
def test_a_decay_is_a_share_that_leaves_something(five, fitted, decay) -> None:
    with pytest.raises(ConfigError, match=r"share of the memory to forget"):
        fitted.partial_fit(*five, decay=decay)


def test_with_decay_a_world_that_changes_is_followed(five, fitted) -> None:
    X, y = five
    X, y = X[y < 3], y[y < 3]
    swapped = (y + 1) % 3
    scores = {}
    for decay in (0.0, 0.9):
        model = copy(fitted)
        for _ in range(3):
            model.partial_fit(X[:150], swapped[:150], decay=decay)
        scores[decay] = model.score(X[300:], swapped[300:])
    assert scores[0.9] > 0.8
    assert scores[0.9] > scores[0.0]


def test_a_class_whose_memory_is_gone_is_not_a_new_one(five) -> None:
    """A bank that took it for one would grow with every call."""
    X, y = five
    model = quick().fit(X[:150], y[:150])
    n = model.bank_.n_prototypes
    for start in (150, 250, 350):
        model.partial_fit(X[start : start + 100], y[start : start + 100], decay=1 - 1e-9)
    assert model.bank_.n_prototypes == n
    assert (model.memory_.masses(5) > 1).all()


def test_a_class_that_is_forgotten_leaves_the_others_as_they_were(five, of_all) -> None:
    X, _ = five
    model = copy(of_all)
    outputs = model.decision_function(X)
    kept = [0, 1, 3, 4]
    masses = model.memory_.masses(5)[kept]
    model.forget(2)
    assert model.classes_.tolist() == kept
    np.testing.assert_allclose(model.decision_function(X), outputs[:, kept], atol=1e-6)
    torch.testing.assert_close(model.memory_.masses(4), masses)
    with pytest.raises(DataError, match=r"class of the model can be forgotten"):
        model.forget(2)


def test_numbers_are_gone_on_with(five) -> None:
    X, _ = five
    y = 50 + 10 * np.sin(X[:, 0]) + X[:, 2]
    model = ProtoPINVRegressor(**QUICK).fit(X[:100], y[:100])
    before = model.score(X[600:], y[600:])
    for start in range(100, 600, 250):
        model.partial_fit(X[start : start + 250], y[start : start + 250])
    assert model.score(X[600:], y[600:]) > before
    assert model.predict(X).shape == (1_000,)
    with pytest.raises(DataError, match=r"1 targets a row\. y has 2"):
        model.partial_fit(X, np.stack([y, y], 1))


def test_several_labels_a_row_are_gone_on_with(five) -> None:
    X, y = five
    labels = np.stack([y > 2, y % 2 == 0], 1).astype(int)
    model = quick().fit(X[:300], labels[:300])
    before = model.score(X[700:], labels[700:])
    model.partial_fit(X[300:700], labels[300:700])
    assert model.score(X[700:], labels[700:]) > before - 0.02
    with pytest.raises(DataError, match=r"2 labels a row"):
        model.partial_fit(X, y)


def test_rows_of_weight_zero_are_not_there(five, fitted) -> None:
    X, y = five
    weight = (y == 3).astype(float)
    some, all_ = (copy(fitted) for _ in range(2))
    some.partial_fit(X[y == 3], y[y == 3])
    all_.partial_fit(X, y, sample_weight=weight)
    assert all_.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(all_.predict_proba(X), some.predict_proba(X), atol=1e-6)


def test_class_weights_count_old_and_new_rows(five) -> None:
    X, y = five
    rare = (y == 0) | ((y == 1) & (np.arange(len(y)) < 60))
    recall = {}
    for class_weight in (None, "balanced"):
        model = quick(class_weight=class_weight).fit(X[rare], y[rare])
        model.partial_fit(X[y == 2], y[y == 2])
        recall[class_weight] = (model.predict(X[y == 1]) == 1).mean()
    assert recall["balanced"] >= recall[None]


def test_a_table_takes_categories_it_has_never_seen() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"size": rng.normal(size=400), "kind": rng.choice(["a", "b"], 400)})
    y = np.where((frame["kind"] == "a") ^ (frame["size"] > 0), "yes", "no")
    model = quick().fit(frame[:200], y[:200])
    more = frame[200:].assign(kind=np.where(np.arange(200) < 20, "new", frame["kind"][200:]))
    model.partial_fit(more, y[200:])
    assert model.score(frame, y) > 0.9
    with pytest.raises(DataError, match=r"There is no 'size'"):
        model.partial_fit(frame.rename(columns={"size": "length"}), y)


def test_a_source_is_learned_from_like_arrays(five, fitted) -> None:
    X, y = five
    chosen = y >= 3
    one, other = (copy(fitted) for _ in range(2))
    one.partial_fit(X[chosen], y[chosen])
    other.partial_fit(ArrayRows(X[chosen], y[chosen]))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.fixture
def pieces(monkeypatch) -> None:
    """Long sources are learned 150 rows at a time."""
    monkeypatch.setattr("protopinv.continual.learning.SOURCE_ROWS", 150)
    monkeypatch.setattr("protopinv.train.survey.READ_NUMBERS", 600)


@pytest.mark.usefixtures("pieces")
def test_a_long_source_is_learned_a_piece_at_a_time(five, fitted) -> None:
    X, y = five
    model = copy(fitted)
    model.partial_fit(ArrayRows(X[y >= 3], y[y >= 3], memory=0))
    assert model.memory_.gaussians.rows.sum() == 1_000
    assert model.score(X, y) > 0.85


@pytest.mark.usefixtures("pieces")
def test_a_long_source_forgets_once(five, fitted) -> None:
    X, y = five
    X, y = X[y < 3], y[y < 3]
    model = copy(fitted)
    model.partial_fit(ArrayRows(X, y, memory=0), decay=0.5)
    assert float(model.memory_.gaussians.mass.sum()) == pytest.approx(0.5 * 600 + 600)


@pytest.mark.usefixtures("pieces")
def test_a_long_source_is_learned_whole_or_not_at_all(five, fitted) -> None:
    X, y = five
    X = X.copy()
    X[-1] = np.inf
    attributes = dict(vars(fitted))
    with pytest.raises(DataError, match=r"must be finite numbers.* holds inf"):
        fitted.partial_fit(ArrayRows(X, y, memory=0))
    assert vars(fitted) == attributes


@pytest.mark.usefixtures("pieces")
def test_the_first_call_is_a_fit_of_a_long_source_too(five) -> None:
    X, y = five
    order = y.argsort(kind="stable")  # no piece has more than two classes
    source = ArrayRows(X[order], y[order], memory=0)
    fitted, begun = quick().fit(source), quick().partial_fit(source)
    np.testing.assert_array_equal(fitted.predict_proba(X), begun.predict_proba(X))


@pytest.mark.usefixtures("pieces")
def test_a_piece_that_counts_nothing_is_left_out(five, fitted) -> None:
    X, y = five
    weight = (np.arange(len(y)) >= 500).astype(float)
    model = copy(fitted)
    model.partial_fit(ArrayRows(X, y, weight, memory=0))
    assert model.memory_.gaussians.rows.sum() == 600 + 500
    with pytest.raises(DataError, match="Some rows must count"):
        model.partial_fit(ArrayRows(X, y, 0 * weight, memory=0))


def test_growing_hardly_changes_answers_and_pruning_says_what_it_cost(fitted, five) -> None:
    X, _ = five
    model = copy(fitted)
    n, before = model.bank_.n_prototypes, model.predict(X)
    model.grow(5)
    assert model.bank_.n_prototypes == n + 5
    assert (model.predict(X) == before).mean() > 0.98
    little, much = copy(model).prune(n), copy(model).prune(6)
    assert (little.n_before, little.n_prototypes) == (n + 5, n)
    assert little.change < much.change
    assert little.agreement >= much.agreement
    assert little.agreement > 0.95


def test_whatever_changes_banks_leaves_answers_as_sure_as_held_out_rows_have_said(
    fitted, five
) -> None:
    X, y = five
    model, sharpness = copy(fitted), fitted.model_.calibration
    assert sharpness != pytest.approx(1, abs=0.01)
    for change in (
        lambda: model.partial_fit(X[y == 3], y[y == 3]),
        lambda: model.grow(5),
        lambda: model.prune(8),
        lambda: model.forget(0),
    ):
        change()
        features = None if model.model_.steps is not None else model.features_
        plain = merged_network(model.bank_, features, model.objective_, model.config_)
        assert model.model_.calibration == sharpness
        torch.testing.assert_close(model.network_.weights[-1], sharpness * plain.weights[-1])


def test_a_budget_of_prototypes_is_kept_as_classes_come(five, fitted) -> None:
    X, y = five
    model = copy(fitted)
    n = model.bank_.n_prototypes
    model.set_params(max_prototypes=n)
    for label in (3, 4):
        model.partial_fit(X[y == label], y[y == label])
    assert model.bank_.n_prototypes == n
    assert model.score(X, y) > 0.85


def test_frozen_prototypes_stay_where_they_are(five, fitted) -> None:
    X, y = five
    model = copy(fitted).freeze()
    n, before = model.bank_.n_prototypes, model.bank_.snapshot()
    model.partial_fit(X[y == 3], y[y == 3])
    assert torch.equal(model.bank_.inputs[:, :n], before.inputs)
    assert torch.equal(model.bank_.hidden[0][:, :n], before.hidden[0])
    assert model.bank_.n_prototypes == n + 10
    model.freeze(0).partial_fit(X[y == 4], y[y == 4])
    assert not torch.equal(model.bank_.inputs[:, :n], before.inputs)


@pytest.mark.parametrize(
    "call", [lambda m: m.grow(0), lambda m: m.prune(0), lambda m: m.freeze(-1)]
)
def test_counts_are_whole_numbers(fitted, call) -> None:
    with pytest.raises(ConfigError, match="must be a whole number, "):
        call(fitted)


@pytest.mark.parametrize("options", [{"memory": -1}, {"memory": "all"}, {"max_prototypes": 0}])
def test_parameters_are_checked(five, options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        quick(**options).fit(*five)


def test_a_limit_of_the_memory_is_kept_or_refused(five) -> None:
    X, y = five
    n_epochs = []
    with pytest.raises(ConfigError, match=r"memory must have room .* Got memory=10\."):
        quick(memory=10).fit(X, y, observer=n_epochs.append)
    assert not n_epochs
    model = quick(memory=120).fit(X[y < 3], y[y < 3])
    assert model.memory_.n_numbers <= 120
    model.partial_fit(X[y < 3], y[y < 3])
    assert model.memory_.n_numbers <= 120
    model.set_params(memory=100)
    with pytest.raises(ConfigError, match=r"memory must have room .* Got memory=100\."):
        model.partial_fit(X, y)
    model.set_params(memory=400).partial_fit(X, y)
    assert 120 < model.memory_.n_numbers <= 400


def test_copies_of_images_are_no_rows_of_the_memory(five) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(120, 6, 6)), np.arange(120) % 3
    X[np.arange(120), y] += 1
    weight = np.where(np.arange(120) < 60, 2.0, 1.0)
    options = {"projection": "none", "scaling": "global", "max_epochs": 2}
    plain, more = (
        quick(**options, copies=copies).fit(X, y, sample_weight=weight)
        for copies in (None, ImageCopies(3))
    )
    for name in ("rows", "mass", "mean", "scatter"):
        one, other = (getattr(m.memory_.gaussians.by_group(3), name) for m in (plain, more))
        torch.testing.assert_close(one, other)
    assert float(more.memory_.gaussians.rows.sum()) == 120
    assert float(more.memory_.gaussians.mass.sum()) == pytest.approx(180)


def test_a_network_is_merged_once(five, fitted, monkeypatch) -> None:
    X, y = five
    model, merged = copy(fitted), []

    def counted(*args, **options):
        merged.append(1)
        return merged_network(*args, **options)

    for module in ("fitting", "continual.editing"):
        monkeypatch.setattr(f"protopinv.{module}.merged_network", counted)
    model.partial_fit(X[y < 3], y[y < 3])
    assert len(merged) == 1


@pytest.fixture(scope="module")
def strokes() -> tuple[np.ndarray, np.ndarray]:
    """Six classes like flat images: a class lights 66 of 200 columns, and others hardly ever."""
    rng = np.random.default_rng(0)
    y = np.arange(1_200) % 6
    near = (np.arange(200) - 33 * y[:, None]) % 200 < 66
    lit = rng.random(near.shape) < np.where(near, 0.1, 0.001)
    return np.where(lit, rng.uniform(50, 255, lit.shape), 0), y


@pytest.mark.parametrize("scaling", ["auto", "feature"])
def test_columns_that_begin_to_vary_do_not_drown_what_is_known(strokes, scaling) -> None:
    X, y = strokes
    model = quick(scaling=scaling)
    for first in (0, 2, 4):
        chosen = (y == first) | (y == first + 1)
        model.partial_fit(X[chosen], y[chosen])
    joint = quick(scaling=scaling).fit(X, y)
    assert model.score(X, y) > joint.score(X, y) - 0.05


def test_a_column_has_unit_variance_over_all_rows_once_it_varies(strokes) -> None:
    X, y = strokes
    X = np.column_stack([X[:, :4], np.where(y < 2, 7.0, X[:, 40] * 1e-3), y])
    model = quick(scaling="feature").fit(X[y < 2], y[y < 2])
    model.partial_fit(X[y >= 2], y[y >= 2])
    spread = (X[:, 4] - X[:, 4].mean()) * model.features_.scale[4].item()
    assert spread.std() == pytest.approx(1.0, rel=1e-6)


def test_rows_that_cannot_be_squared_are_refused_and_the_model_stays(blobs) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(n_prototypes=9, hidden_sizes=8, max_epochs=2).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(DataError, match="too large to be squared once they are scaled"):
        model.partial_fit(X * 1e200, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_the_only_class_in_the_memory_is_not_forgotten(blobs) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(n_prototypes=9, hidden_sizes=8, max_epochs=2).fit(X, y)
    for label in (1, 2):  # as a decay near 1 does it
        gaussians = model.memory_.gaussians
        memory = replace(model.memory_, gaussians=gaussians.taken(gaussians.group != label))
        model.model_ = replace(model.model_, memory=memory)
    with pytest.raises(DataError, match="while the memory has rows of others"):
        model.forget(0)
