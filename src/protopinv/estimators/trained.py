"""What a fit leaves behind, and what can be done with it: ask it, save it, take it elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Generator, nn

from protopinv.bank import Bank
from protopinv.diagnose import Diagnosis, Perturbation, check_lemma, diagnose
from protopinv.errors import ModelFileError
from protopinv.estimators.checks import solvable
from protopinv.estimators.door import NetworkEstimator
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.tables import Table
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.look import Tried

if TYPE_CHECKING:
    from protopinv.export import Exported


class BankEstimator(NetworkEstimator):
    """An estimator with a trained bank: what a fit leaves behind, and where it can go."""

    bank_: Bank
    config_: TrainConfig
    features_: FeatureMap
    history_: History
    n_iter_: int
    tried_: tuple[Tried, ...]
    examples_: NDArray[Any]
    target_names_: list[str] | None = None
    image_range_: tuple[float, float] | None = None
    table_: Table | None = None
    sharpness_: float = 1.0
    memory_: Memory | None = None
    n_frozen_: int = 0
    last_bank_: Bank | None = None
    n_calls_: int = 0
    is_closed_: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: all but training rows, which leave the process only when asked."""
        state: dict[str, Any] = super().__getstate__()
        if "examples_" in state:
            state = {**state, "examples_": state["examples_"][:0].copy()}
        return state

    def __copy__(self) -> Self:
        """A copy within the process, with all there is."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    @property
    def n_trained_(self) -> int:
        """Numbers that were trained: those of the banks whose mean is predicted."""
        return self._bank().n_trained

    def _bank(self) -> Bank:
        """The prototypes; raises ModelFileError for a model that was saved without them."""
        check_is_fitted(self, "network_")
        if not hasattr(self, "bank_"):
            raise ModelFileError(
                "This needs the prototypes of a model. They were left out when it was saved. Load "
                "a file that was saved with them."
            )
        return self.bank_

    def diagnose(self) -> Diagnosis:
        """Conditioning and sensitivity of every layer's solve, of the first member."""
        with solvable():
            return diagnose(self._bank().member(0), architecture_of(self.config_))

    def check_lemma(self, size: float = 1e-4, seed: int = 0) -> tuple[Perturbation, ...]:
        """How far every layer's weights move when its prototypes do, next to Lemma 1's bound.

        They are moved in a random direction, by ``size`` times the norm of the prototype matrix.
        """
        bank, generator = self._bank().member(0), Generator().manual_seed(seed)
        with solvable():
            return check_lemma(bank, architecture_of(self.config_), size=size, generator=generator)

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
        Without the ``memory`` of its rows ``partial_fit`` cannot go on from it.
        ``dtype`` is the type of number of the network: float64 loses nothing, float32, float16 and
        int8 are smaller. A loaded model is checked on rows that are made up; with ``examples``
        these are up to 32 training rows instead, and anyone who has the file can read them.
        """
        from protopinv.estimators.saving import save

        save(self, path, bank=bank, dtype=dtype, examples=examples, memory=memory)

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
        ranges of int8 are taken from ``calibration``, rows like those of training, or from rows
        that are made up, which is less accurate. Rows ``X`` say how far predictions move, and
        targets ``y`` what that costs. With ``examples`` up to 32 training rows go along in a model
        file, and 8 in the stored cases of C; without it these are made up.
        """
        from protopinv.estimators.exporting import export

        return export(self, path, dtype=dtype, calibration=calibration, X=X, y=y, examples=examples)

    def to_sklearn(self) -> Any:
        """An ordinary fitted MLPClassifier or MLPRegressor that predicts the same.

        A regressor's bounds are not part of it: for rows far from all others it may answer with
        any number. Raises ExportError for a network that these do not have: another activation
        than relu, tanh, sigmoid and identity, a stem, bent columns.
        """
        from protopinv.estimators.exporting import to_sklearn

        return to_sklearn(self)

    def to_torch(self) -> nn.Module:
        """A torch module in float32 from rows to outputs; these are logits for classes."""
        from protopinv.estimators.exporting import to_torch

        return to_torch(self)
