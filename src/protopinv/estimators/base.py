"""What the classifier and the regressor share: an estimator holds parameters and a model."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags, check_random_state
from torch import Generator, nn

from protopinv.callbacks import Callback, Callbacks
from protopinv.continual import LearnOptions, Pruned, freeze, grow, learn, prune
from protopinv.diagnose import Diagnosis, Perturbation, check_lemma, diagnose
from protopinv.errors import ConfigError
from protopinv.estimators.parameters import Parameters, as_estimator, stored
from protopinv.estimators.rows import row_source, rows_to_predict, with_image_shape
from protopinv.model import FitOptions, Model, Saving, fit_rows
from protopinv.model.fitting import solvable
from protopinv.rows import RowSource
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.history import Observer
from protopinv.train.machine import resolve_device
from protopinv.train.targets import Targets

if TYPE_CHECKING:
    from protopinv.export import Exported

# Nobody has more numbers to keep; a file holds no larger limit.
MOST_MEMORY = 2**53


def fitted(of: Callable[[Model], Any], type_: str, text: str, *, may_lack: bool = True) -> Any:
    """A fitted attribute: a property of ``model_``, absent before ``fit``.

    Unless it ``may_lack``, None is absence too.
    """

    def attribute(self: "ProtoPINV") -> Any:
        value = of(self._model())
        if value is None and not may_lack:
            raise AttributeError(f"This {type(self).__name__} has none: {text}")
        return value

    return property(attribute, doc=f"{type_}\n        {text}")


@as_estimator
class ProtoPINV(Parameters):
    """An estimator whose ``fit`` leaves one value behind, ``model_``."""

    def __sklearn_tags__(self) -> Tags:
        """Say that sparse rows are fine: they are made dense a piece at a time."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        observer: Observer | None = None,
        callbacks: Iterable[Callback] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str = "5min",
        resume: bool = False,
    ) -> Self:
        """Train on rows ``X`` and targets ``y``; ``sample_weight`` says what each row counts.

        ``X`` is an array, a sparse matrix, a frame of pandas or polars, images, or a source of rows
        that brings its targets and weights along, as ``open_rows`` makes it of files; then ``y`` is
        left out.

        ``observer`` is a function that gets every epoch's report; if it returns True, training
        stops. ``callbacks`` are called at the beginning and the end too, and may fail without harm;
        ``protopinv.callbacks`` has some.

        With ``checkpoint``, a path, the state of the training is written there every so many
        epochs, or after a time such as "30s" or "10min", and on Ctrl-C or SIGTERM; ``resume``
        continues from that file, or begins if there is none. After any error the estimator is as
        it was before.
        """
        watchers = Callbacks(observer, callbacks)
        with watchers.told_of(self), solvable():
            start = vars(self).get("model_") if self.warm_start else None
            config, rows, targets = self._rows(X, y, sample_weight, start)
            saving = Saving(checkpoint, checkpoint_every, resume)
            options = self._options()
            self.model_ = fit_rows(
                rows, targets, config, options, start=start, callbacks=watchers, saving=saving
            )
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class, the labels or the numbers of each row."""
        return self._model().objective.decode(self._outputs(X).numpy())

    def grow(self, n: int) -> Self:
        """Add ``n`` prototypes to every bank, at rows drawn from the replay memory.

        Their targets are the predictions there, so that predictions hardly change;
        ``partial_fit`` then has more to learn with.
        """
        return self._become(grow, n, self._seed())

    def freeze(self, n: int | None = None) -> Self:
        """Keep the first ``n`` prototypes of every bank where they are; None: all, 0: none.

        Those that are added later are trained.
        """
        return self._become(freeze, n)

    def prune(self, n_prototypes: int) -> Pruned:
        """Leave every bank with so many prototypes, the most important ones.

        The importance of one is how far outputs move without it, for rows drawn from the replay
        memory; frozen ones stay, as far as there is room.
        """
        with solvable():
            self.model_, pruned = prune(self._model(), n_prototypes, self._seed())
        return pruned

    def diagnose(self) -> Diagnosis:
        """Conditioning and sensitivity of every layer's solve, of the first member."""
        with solvable():
            model = self._model()
            return diagnose(model.prototypes.member(0), model.config.architecture)

    def check_lemma(self, size: float = 1e-4, seed: int = 0) -> tuple[Perturbation, ...]:
        """How far every layer's weights move when its prototypes do, next to Lemma 1's bound.

        They are moved in a random direction, by ``size`` times the norm of the prototype matrix.
        """
        generator = Generator().manual_seed(seed)
        with solvable():
            model = self._model()
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
        from protopinv.model_file import save

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

        rows = partial(rows_to_predict, self, model=self._model())
        return export(
            self._stored(),
            path,
            dtype=dtype,
            calibration=None if calibration is None else rows(calibration),
            X=None if X is None else rows(X),
            y=y,
            examples=examples,
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

    network_ = fitted(
        lambda m: m.network,
        "Network",
        "The plain network on original features, behind ``front_`` if there is one, in float64.",
    )
    bank_ = fitted(
        lambda m: m.bank,
        "Bank",
        "The trained prototypes of every member of the ensemble, members first.",
        may_lack=False,
    )
    config_ = fitted(
        lambda m: m.config, "TrainConfig", "The hyperparameters used: every 'auto' resolved."
    )
    candidates_ = fitted(
        lambda m: m.candidates,
        "tuple of Candidate",
        "The candidates that were screened, with their out-of-fold loss; empty for one alone, and "
        "in a model that was loaded.",
    )
    history_ = fitted(
        lambda m: m.history,
        "History",
        "Loss, learning rate, ridges and validation score of every epoch; what the guard did.",
    )
    n_iter_ = fitted(lambda m: m.history.n_epochs, "int", "Epochs that were run.")
    objective_ = fitted(
        lambda m: m.objective, "Classes, Labels or Numbers", "What the outputs stand for."
    )
    table_ = fitted(
        lambda m: m.table,
        "Table or None",
        "How the columns of a frame are encoded; ``print`` shows a line for each.",
    )
    features_ = fitted(
        lambda m: m.features,
        "FeatureMap",
        "Scaling and projection before the network, merged into ``network_``.",
    )
    front_ = fitted(
        lambda m: m.front,
        "Stem, Squash, Clip or None",
        "A stem or tail transform before the network, which cannot be merged.",
    )
    memory_ = fitted(
        lambda m: m.memory,
        "Memory or None",
        "The replay memory: Gaussians in place of the rows, for ``partial_fit``.",
    )
    n_trained_ = fitted(lambda m: m.prototypes.n_trained, "int", "Trainable parameters.")
    n_shipped_ = fitted(
        lambda m: m.size, "int", "Model size: parameters that are needed to predict."
    )
    n_features_in_ = fitted(lambda m: m.n_columns, "int", "Columns of ``X`` in ``fit``.")
    feature_names_in_ = fitted(
        lambda m: None if m.feature_names is None else np.array(m.feature_names, dtype=object),
        "ndarray",
        "Names of the columns of ``X`` in ``fit``, where they had any.",
        may_lack=False,
    )

    def _model(self) -> Model:
        """The fitted model; raises NotFittedError without one."""
        if "model_" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        model: Model = self.model_
        return model

    def _become(self, change: Callable[..., Model], *arguments: Any) -> Self:
        """Replace the model by what a function makes of it."""
        with solvable():
            self.model_ = change(self._model(), *arguments)
        return self

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs in float64, on the host."""
        model = self._model()
        return model.outputs(rows_to_predict(self, X, model), resolve_device(self.device))

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, model: Model | None
    ) -> tuple[TrainConfig, RowSource, Targets]:
        """Parameters first, then rows: whichever is wrong, nothing has happened yet."""
        config, X = with_image_shape(self.config(), X)
        rows = row_source(
            self,
            X,
            y,
            sample_weight,
            model=model,
            columns=self.columns if model is None else None,
            is_image=config.image_shape is not None,
        )
        return config, rows, self._targets_of(rows, model)

    @abstractmethod
    def _targets_of(self, rows: RowSource, model: Model | None) -> Targets:
        """The kind of the targets; those in memory are checked, and may be converted."""

    def _options(self) -> FitOptions:
        parameters = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("device", "verbose") and not isinstance(value, np.random.RandomState)
        }
        return FitOptions(
            seed=self._seed(),
            device=resolve_device(self.device),
            fixed_seed=self.random_state is not None,
            columns=self.columns,
            class_weight=getattr(self, "class_weight", None),
            memory=None if is_auto(self.memory) else min(int(self.memory), MOST_MEMORY),
            verbose=bool(self.verbose),
            parameters=parameters,
        )

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        decay: float,
        observer: Observer | None,
        classes: Any = None,
    ) -> Self:
        """Update a fitted model, or fit one; after Ctrl-C, or any error, the model is as it was."""
        decay = require_decay(decay)
        model = vars(self).get("model_")
        with solvable():
            config, rows, targets = self._rows(X, y, sample_weight, model)
            if model is None:
                callbacks = Callbacks(observer, None)
                targets = self._declared(targets, rows, classes)
                fitted_model = fit_rows(rows, targets, config, self._options(), callbacks=callbacks)
                self.model_ = replace(fitted_model, is_closed=classes is not None)
                return self
            options = LearnOptions(
                decay=decay,
                observer=observer,
                max_prototypes=self.max_prototypes,
                classes=self._listed_classes(classes),
                bounded=bool(getattr(self, "bounded", False)),
            )
            self.model_ = learn(model, rows, config, self._options(), options)
        return self

    def _declared(self, targets: Targets, rows: RowSource, classes: Any) -> Targets:  # noqa: ARG002
        """Targets with the classes that a user lists; only classifiers have any."""
        return targets

    def _listed_classes(self, classes: Any) -> NDArray[Any] | None:  # noqa: ARG002
        """The classes that a user lists; only classifiers have any."""
        return None

    def _stored(self) -> Model:
        """The model with the parameters as they are set now."""
        return replace(self._model(), parameters=stored(self))

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def require_decay(decay: Any) -> float:
    """Raise ConfigError unless this is a share of the memory that leaves some of it."""
    number = isinstance(decay, int | float | np.number) and not isinstance(decay, bool)
    if not number or not 0 <= decay < 1:
        raise ConfigError(
            "decay is the share of the memory to forget: from 0 on and below 1. Got "
            f"{decay!r}. Change it, or fit again to forget everything."
        )
    return float(decay)
