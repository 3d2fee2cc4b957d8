"""What the classifier and the regressor share: an estimator holds parameters and a model."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Generator, nn

from protopinv.callbacks import Callback, Callbacks
from protopinv.continual import LearnOptions, Pruned, freeze, grow, learn, prune
from protopinv.diagnose import Diagnosis, Perturbation, check_lemma, diagnose
from protopinv.estimators.parameters import (
    ConvStem,
    Hyperparameters,
    ImageCopies,
    as_estimator,
    fitted,
    flat,
    parameter,
    stored,
)
from protopinv.estimators.rows import row_source, rows_to_predict, with_image_shape
from protopinv.fitting import FitOptions, fit_rows, training_errors
from protopinv.model import Model
from protopinv.plain import Rule, require_rule
from protopinv.rows import RowSource
from protopinv.train.config import (
    AUTO,
    CHECKPOINT_EVERY,
    COUNT_OR_NONE,
    FLAG,
    NATURAL,
    SHARE,
    TrainConfig,
    is_auto,
)
from protopinv.train.history import Observer
from protopinv.train.machine import resolve_device
from protopinv.train.targets import Targets

if TYPE_CHECKING:
    from protopinv.export import Exported

# Nobody has more numbers to keep; a file holds no larger limit.
MOST_MEMORY = 2**53


@as_estimator
class ProtoPINV(Hyperparameters):
    """Parameters, and one frozen value ``model_`` that ``fit`` leaves behind."""

    columns: Mapping[str, str] | None = parameter(
        None,
        "dict or None",
        "How columns of a frame are used, by name: 'number', 'category', 'date' or 'drop'; other "
        "columns are inferred.",
    )
    stem: ConvStem | str | None = parameter(
        AUTO,
        "ConvStem, None or 'auto'",
        "A convolutional stem before the network; auto: for images large enough.",
        Rule(
            lambda v: v is None or is_auto(v) or isinstance(v, ConvStem),
            "'auto', None or ConvStem(...)",
        ),
    )
    copies: ImageCopies | None = parameter(
        None,
        "ImageCopies or None",
        "Distorted copies of every training image.",
        Rule(lambda v: v is None or isinstance(v, ImageCopies), "None or ImageCopies(...)"),
    )
    memory: int | str = parameter(
        AUTO,
        "int or 'auto'",
        "Limit of the replay memory for ``partial_fit``, in numbers; 0: none; auto: a quarter of "
        "those of the rows, 138,500 at most, and one Gaussian for every class at least.",
        Rule(lambda v: is_auto(v) or NATURAL.test(v), "'auto' or a whole number, 0 or more"),
    )
    max_prototypes: int | None = parameter(
        None,
        "int or None",
        "Upper limit of prototypes per bank in ``partial_fit``. When new classes need more, the "
        "least important prototypes are removed.",
        COUNT_OR_NONE,
    )
    warm_start: Any = parameter(
        False,
        "bool",
        "Start ``fit`` from the banks and the features of the last fit, without folds.",
        FLAG,
    )
    device: str = parameter(
        AUTO,
        "str",
        "Where to train and predict: 'cpu', 'cuda', 'cuda:1'; 'auto' takes a GPU where torch sees "
        "one.",
    )
    random_state: Any = parameter(
        None, "int, RandomState or None", "Seed; equal values give equal models on one machine."
    )
    verbose: Any = parameter(
        0,
        "int",
        "1 shows a progress bar on stderr.",
        Rule(lambda v: isinstance(v, int), "a whole number or a bool"),
    )

    ensemble_ = fitted(
        "parts",
        "The models whose predictions are averaged, each with its ``weight``, ``config`` and "
        "``network``; the one that counts most is first, and other attributes are of it.",
        "tuple of Model",
    )
    network_ = fitted(
        "network",
        "The plain network in float64, on original features behind ``front_`` if there is one, or "
        "on the steps of these.",
    )
    front_ = fitted("front", "A stem or tail transform before the network, which cannot be merged.")
    features_ = fitted(
        "features", "Scaling and projection before the network, merged into ``network_``."
    )
    bank_ = fitted(
        "bank", "The trained prototypes of every member, members first.", "Bank", may_lack=False
    )
    memory_ = fitted(
        "memory", "The replay memory: Gaussians in place of the rows, for ``partial_fit``."
    )
    table_ = fitted(
        "table", "How the columns of a frame are encoded; ``print`` shows a line for each."
    )
    objective_ = fitted("objective", "What the outputs stand for.", "Classes, Labels or Numbers")
    config_ = fitted("config", "The hyperparameters used: every 'auto' resolved.")
    candidates_ = fitted(
        "candidates",
        "The candidates that were screened, with their out-of-fold loss; empty for one alone, and "
        "in a model that was loaded.",
    )
    history_ = fitted(
        "history",
        "Loss, learning rate, ridges and validation score of every epoch; what the guard did.",
    )
    n_iter_ = fitted("history.n_epochs", "Epochs that were run.", "int")
    n_trained_ = fitted("n_trained", "Trainable parameters.", "int")
    n_shipped_ = fitted("size", "Model size: parameters that are needed to predict.", "int")
    n_features_in_ = fitted("n_columns", "Columns of ``X`` in ``fit``.")

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """ndarray
        Names of the columns of ``X`` in ``fit``, where they had any.
        """
        names = self._model().feature_names
        if names is None:
            raise AttributeError(f"This {type(self).__name__} was fitted without feature names.")
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Tags:
        """Say that sparse rows are fine, made dense a piece at a time, and that gaps are."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def config(self) -> TrainConfig:
        """The hyperparameters, validated: ConfigError for a parameter outside its range.

        What is "auto" is resolved in ``fit``; ``config_`` has the values that were used.
        """
        for item in fields(self):
            if rule := item.metadata.get("rule"):
                value = getattr(self, item.name)
                plain = value.tolist() if isinstance(value, np.generic) else value
                require_rule(item.name, plain, rule, f"Change it, or leave it at {item.default!r}.")
        return TrainConfig(**flat(self))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        observer: Observer | None = None,
        callbacks: Iterable[Callback] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str = CHECKPOINT_EVERY,
        resume: bool = False,
    ) -> Self:
        """Train on rows ``X`` and targets ``y``; ``sample_weight`` says what each row counts.

        ``y`` holds labels for a classifier and numbers for a regressor, one a row or several. ``X``
        is an array, a sparse matrix, a frame of pandas or polars, images, or a source of rows that
        brings its targets and weights along, as ``open_rows`` makes it of files; then ``y`` is left
        out.

        ``observer`` is a function that gets every epoch's report; if it returns True, training
        stops. ``callbacks`` are called at the beginning and the end too, and may fail without harm;
        ``protopinv.callbacks`` has some.

        With ``checkpoint``, a path, the state of the training is written there every so many
        epochs, or after a time such as "30s" or "10min", and on Ctrl-C or SIGTERM; ``resume``
        continues from that file, or begins if there is none. After any error the estimator is as
        it was before.
        """
        watchers = Callbacks(observer, callbacks)
        with watchers.told_of(self):
            start = vars(self).get("model_") if self.warm_start else None
            config, rows = self._rows(X, y, sample_weight, start)
            targets = self._targets(rows)
            options = self._options(
                checkpoint=checkpoint, checkpoint_every=checkpoint_every, resume=resume
            )
            self.model_ = fit_rows(rows, targets, config, options, start=start, callbacks=watchers)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, its labels as 0 and 1, or its numbers in the units of ``y``."""
        return self._model().objective.decode(self._outputs(X).numpy())

    @training_errors()
    def grow(self, n: int) -> Self:
        """Add ``n`` prototypes to every bank, at rows drawn from the replay memory.

        Their targets are the predictions there, so that predictions hardly change;
        ``partial_fit`` then has more to learn with.
        """
        self.model_ = grow(self._model(), n, self._seed())
        return self

    def freeze(self, n: int | None = None) -> Self:
        """Keep the first ``n`` prototypes of every bank where they are; None: all, 0: none.

        Those that are added later are trained.
        """
        self.model_ = freeze(self._model(), n)
        return self

    @training_errors()
    def prune(self, n_prototypes: int) -> Pruned:
        """Leave every bank with so many prototypes, the most important ones.

        The importance of one is how far outputs move without it, for rows drawn from the replay
        memory; frozen ones stay, as far as there is room.
        """
        self.model_, pruned = prune(self._model(), n_prototypes, self._seed())
        return pruned

    @training_errors()
    def diagnose(self) -> Diagnosis:
        """Conditioning and sensitivity of every layer's solve, of the first member."""
        model = self._model()
        return diagnose(model.prototypes.member(0), model.config.architecture)

    @training_errors()
    def check_lemma(self, size: float = 1e-4, seed: int = 0) -> tuple[Perturbation, ...]:
        """How far every layer's weights move when its prototypes do, next to Lemma 1's bound.

        They are moved in a random direction, by ``size`` times the norm of the prototype matrix.
        """
        model, generator = self._model(), Generator().manual_seed(seed)
        bank, architecture = model.prototypes.member(0), model.config.architecture
        return check_lemma(bank, architecture, size=size, generator=generator)

    def save(
        self,
        path: str | Path,
        *,
        bank: bool = True,
        dtype: str = "float64",
        examples: bool = False,
        memory: bool = True,
    ) -> None:
        """Write the fitted model to a file that ``protopinv.load`` reads.

        Without the ``bank`` the file is smaller; it predicts, and cannot be trained further.
        Without the replay ``memory`` ``partial_fit`` cannot continue from it. ``dtype`` is the
        number type of the network: float64 loses nothing, float32, float16 and int8 are smaller. A
        loaded model is checked on made-up rows; with ``examples`` these are up to 32 training rows
        instead, and anyone who has the file can read them.
        """
        from protopinv.model_file.saving import save

        save(self._stored(), path, bank=bank, dtype=dtype, examples=examples, memory=memory)

    def export(
        self,
        path: str | Path,
        *,
        dtype: str = "float32",
        calibration: Any = None,
        X: Any = None,
        y: Any = None,
        examples: bool = False,
    ) -> "Exported":
        """Write the network in a foreign format, by the ending: .onnx, .c, .mjs or .safetensors.

        ``dtype`` is "int8" or "float32" for .c, and any that ``save`` takes for .safetensors. The
        ranges of int8 are taken from ``calibration``, rows like those of training, or from made-up
        rows, which is less accurate. With rows ``X`` predictions before and after are compared, and
        with targets ``y`` their accuracy. With ``examples`` up to 32 training rows go along in a
        model file, and 8 in the stored cases of C; without it these are made up.
        """
        from protopinv.export.exporting import export

        model = self._stored()
        calibration, X = (
            None if rows is None else rows_to_predict(self, rows, model)
            for rows in (calibration, X)
        )
        return export(
            model, path, dtype=dtype, calibration=calibration, X=X, y=y, examples=examples
        )

    def to_sklearn(self) -> Any:
        """An ordinary fitted MLPClassifier or MLPRegressor that predicts the same.

        A regressor's bounds are not part of it: for rows far from all others it may predict any
        number. Raises ExportError for a network that these do not have: another activation than
        relu, tanh, sigmoid and identity, a stem, compressed tails.
        """
        from protopinv.export.objects import to_sklearn

        return to_sklearn(self._model())

    def to_torch(self) -> nn.Module:
        """A torch module in float32 from rows to outputs; these are logits for classes."""
        from protopinv.export.objects import to_torch

        return to_torch(self._model())

    def _targets(self, rows: RowSource, listed: Any = None) -> Targets:
        """Statistics of the targets; ``listed`` are all classes that there may be."""
        raise NotImplementedError

    @training_errors()
    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        decay: float,
        observer: Observer | None,
        listed: Any = None,
    ) -> Self:
        """Learn from more rows; the first call is a fit."""
        remedy = "It is the share of the memory to forget. To forget everything, fit again."
        require_rule("decay", decay, SHARE, remedy)
        model = vars(self).get("model_")
        config, rows = self._rows(X, y, sample_weight, model)
        targets, options = self._targets(rows, listed), self._options()
        if model is None:
            first = fit_rows(rows, targets, config, options, callbacks=Callbacks(observer, None))
            self.model_ = replace(first, is_closed=listed is not None)
        else:
            how = LearnOptions(targets, decay, observer, self.max_prototypes)
            self.model_ = learn(model, rows, config, options, how)
        return self

    def _model(self) -> Model:
        """The fitted model; raises NotFittedError without one."""
        if "model_" not in vars(self):  # it takes longer to ask scikit-learn
            check_is_fitted(self)
        model: Model = self.model_
        return model

    def _stored(self) -> Model:
        """The model with the parameters as they are set now."""
        return replace(self._model(), parameters=stored(self))

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs in float64, on the host."""
        model = self._model()
        return model.outputs(rows_to_predict(self, X, model), resolve_device(self.device))

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, model: Model | None
    ) -> tuple[TrainConfig, RowSource]:
        """Parameters first, then rows: whichever is wrong, nothing has happened yet."""
        config, X = with_image_shape(self.config(), X)
        is_image = config.image_shape is not None
        return config, row_source(self, X, y, sample_weight, model=model, is_image=is_image)

    def _options(self, **checkpoints: Any) -> FitOptions:
        """What a fit takes beside rows and hyperparameters."""
        return FitOptions(
            seed=self._seed(),
            device=resolve_device(self.device),
            fixed_seed=self.random_state is not None,
            columns=self.columns,
            class_weight=getattr(self, "class_weight", None),
            memory=None if is_auto(self.memory) else min(int(self.memory), MOST_MEMORY),
            verbose=bool(self.verbose),
            **checkpoints,
        )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))
