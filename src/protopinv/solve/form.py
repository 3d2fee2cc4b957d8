"""What a form of the solve does: weights from targets, and gradients the way back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

# The gradients in A, in T and, where it is asked for, in the ridge.
Pulled = tuple[Tensor, Tensor, Tensor | None]


class Form(ABC):
    """Made from the designs and ridges of some layers, and the numbers of columns to solve for.

    Leading axes are members of a population.

    ``error`` is the estimated relative error of each layer's weights. ``duals`` are S with W = A'S
    once the weights are made, for the form that has them.
    """

    error: Tensor
    duals: Sequence[Tensor] = ()

    @abstractmethod
    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W of every layer."""

    @abstractmethod
    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """From the gradient in W of every layer, once the weights are made."""


class LayerByLayer(Form):
    """A form whose layers are pulled back one after another."""

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """From the gradient in W of every layer."""
        return [
            self.pullback(layer, dW, with_ridge=with_ridge) for layer, dW in enumerate(gradients)
        ]

    @abstractmethod
    def pullback(self, layer: int, dW: Tensor, *, with_ridge: bool) -> Pulled:
        """From the gradient in one W."""
