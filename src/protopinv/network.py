"""Weights from the bank, and rows through weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from protopinv.bank import Bank
from protopinv.solve import Solution, exact_type, solve_layers

# So many rows at most are better off with NumPy's products.
FEW_ROWS = 4
# With so much to multiply it is worth a thought how. Factors are, if they leave so much of it.
MUCH_WORK = 2**24
WORTH_FACTORS = 0.7
# Rows in float32 stay in it if outputs are off by at most this share of how much they vary; so many
# of the rows are tried.
FLOAT32_ERROR = 1e-5
FLOAT32_ROWS = 128

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "cos": torch.cos,  # random Fourier features
    "identity": lambda Z: Z,  # random linear features
}


# Activations that overwrite their argument.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "silu": lambda Z: functional.silu(Z, inplace=True),
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
    "cos": torch.cos_,
}


@dataclass(frozen=True)
class Architecture:
    """How a bank becomes weights, apart from its numbers and from how the systems are solved."""

    activation: str
    temperature: float = 0.0
    normalize_inputs: bool = False


def with_bias(X: Float[Tensor, "*members n d"]) -> Float[Tensor, "*members n d_plus_1"]:
    """[1, X]: the column of ones comes first."""
    return torch.cat([X.new_ones(*X.shape[:-1], 1), X], dim=-1)


def solve_weights(bank: Bank, architecture: Architecture, *, form: str = "auto") -> Solution:
    """W_1 = ridge([1, X], H_1), W_{l+1} = ridge([1, act(H_l)], H_{l+1}), with H_{L+1} = Y.

    A learned scale of the features is folded into W_1.
    """
    designs, targets = designs_of(bank, architecture), targets_of(bank, architecture)
    solution = solve_layers(designs, targets, bank.ridge, form=form)
    if bank.scale is None:
        return solution
    first, *others = solution.weights
    return Solution((scaled_rows(first, bank.scale), *others), solution.error)


def scaled_rows(
    W: Float[Tensor, "*members d_plus_1 h"], scale: Float[Tensor, "*members d"]
) -> Float[Tensor, "*members d_plus_1 h"]:
    """diag(1, scale) W: what rows x are given instead of W for scale * x."""
    return with_bias(scale[..., None, :]).mT * W


def designs_of(bank: Bank, architecture: Architecture) -> list[Float[Tensor, "*members p _"]]:
    """A_0 = [1, X], A_l = [1, act(H_l)]: what each layer's weights are solved from."""
    activation = ACTIVATIONS[architecture.activation]
    inputs = unit_rows(bank.inputs) if architecture.normalize_inputs else bank.inputs
    return [with_bias(inputs), *(with_bias(activation(H)) for H in bank.hidden)]


def targets_of(bank: Bank, architecture: Architecture) -> list[Float[Tensor, "*members p _"]]:
    """H_1, ..., H_L, Y: what each layer's weights are solved for."""
    return [*bank.hidden, soft_labels(bank.outputs, architecture.temperature)]


def unit_rows(X: Float[Tensor, "*members p d"]) -> Float[Tensor, "*members p d"]:
    """Each row scaled to a root mean square of one, the scale of globally scaled features."""
    # Clamped before the root, whose derivative at zero is not finite.
    mean_square = X.square().mean(dim=-1, keepdim=True).clamp_min(torch.finfo(X.dtype).tiny)
    return X / mean_square.sqrt()


def soft_labels(
    Y: Float[Tensor, "*members p k"], temperature: float
) -> Float[Tensor, "*members p k"]:
    """softmax(Y / T), or Y itself for T = 0."""
    return Y if temperature == 0 else torch.softmax(Y / temperature, dim=-1)


# The weights of a layer: a matrix whose first row are the biases, or several such blocks, each for
# inputs and outputs of its own, that stand for a matrix with zeros elsewhere.
Layer = Float[Tensor, "... _ _"]


def inputs_of(W: Layer) -> int:
    """The number of inputs of a layer."""
    return (W.shape[-2] - 1) * (1 if W.ndim == 2 else len(W))


def outputs_of(W: Layer) -> int:
    """The number of outputs of a layer."""
    return W.shape[-1] * (1 if W.ndim == 2 else len(W))


def dense(W: Layer) -> Float[Tensor, "_ _"]:
    """One matrix, with the zeros that blocks leave out."""
    if W.ndim == 2:
        return W
    return torch.cat([W[:, 0].reshape(1, -1), torch.block_diag(*W[:, 1:])])


def affine(X: Float[Tensor, "n d"], W: Layer) -> Float[Tensor, "n h"]:
    """[1, x] W = x W[1:] + W[0] for every row."""
    if W.ndim == 2:
        return (X @ W[1:]).add_(W[0])  # sooner than addmm, which writes the biases out first
    parts = X.unflatten(1, (len(W), W.shape[1] - 1)).movedim(1, 0)
    return torch.baddbmm(W[:, :1], parts, W[:, 1:]).movedim(0, 1).flatten(1)


def affine_of_few(X: Float[Tensor, "n d"], W: Layer) -> Float[Tensor, "n h"]:
    """``affine`` by NumPy, which is twice as fast for one row on a CPU; without a derivative."""
    rows, weights = X.numpy(), W.numpy()
    if W.ndim == 2:
        return torch.from_numpy(rows @ weights[1:] + weights[0])
    parts = rows.reshape(len(rows), len(weights), weights.shape[1] - 1).swapaxes(0, 1)
    outputs = parts @ weights[:, 1:] + weights[:, :1]
    return torch.from_numpy(outputs.swapaxes(0, 1).reshape(len(rows), outputs_of(W)))


def propagate(
    X: Float[Tensor, "n d"],
    weights: Sequence[Layer],
    activation: str,
    layer: Callable[[Tensor, Tensor], Tensor] = affine,
) -> Float[Tensor, "n k"]:
    """act([1, x] W_1), act([1, .] W_2), ..., the last layer linear."""
    act = IN_PLACE.get(activation, ACTIVATIONS[activation])
    for W in weights[:-1]:
        X = act(layer(X, W))
    return layer(X, weights[-1])


@dataclass(frozen=True)
class Quick:
    """The layers of a network for many rows at once, in float64 and float32.

    Before them rows may go through ``thin``, the first of two factors that take less work than the
    first layer itself.
    """

    thin: Float[Tensor, "d r"] | None
    weights: tuple[Layer, ...]

    @classmethod
    def of(cls, network: "Network") -> "Quick":
        """Of any network."""
        first, *others = network.weights
        factors = sketched_factors(first[1:], network.rank)
        if factors is None:
            return cls(None, network.weights)
        left, right = factors
        return cls(left, (torch.cat([first[:1], right]), *others))

    def __call__(self, X: Float[Tensor, "n d"], activation: str) -> Float[Tensor, "n k"]:
        """Outputs in the precision of the rows."""
        if self.thin is not None:
            X = X @ self.thin.to(X.dtype)
        return propagate(X, [W.to(X.dtype) for W in self.weights], activation)

    def suits_float32(self, X: Float[Tensor, "n d"], activation: str) -> bool:
        """Whether outputs will be near enough, tried on some of the rows.

        Scaling is folded into the weights, so those of features far from zero may cancel each
        other: then digits count that float32 has not.
        """
        if exact_type(torch.float32) != torch.float32:  # float32 in name only
            return False
        some = X[:: max(1, len(X) // FLOAT32_ROWS)]
        exact = self(some.double(), activation)
        error = (self(some, activation) - exact).abs().amax(0)
        return bool((error <= FLOAT32_ERROR * exact.std(0, correction=0)).all())


def sketched_factors(
    W: Float[Tensor, "d h"], rank: int | None
) -> tuple[Float[Tensor, "d r"], Float[Tensor, "r h"]] | None:
    """Two matrices whose product this is, where that saves much work.

    ``rank`` is the most directions it may have. As many random mixtures of its rows span all of
    them.
    """
    if rank is None or rank * sum(W.shape) > WORTH_FACTORS * W.numel():
        return None
    generator = torch.Generator(W.device).manual_seed(0)
    # every row counts alike: features of large numbers have small weights
    sizes = W.norm(dim=1)
    rows = W / sizes.clamp_min(torch.finfo(W.dtype).tiny)[:, None]
    mixing = torch.randn(rank, len(W), dtype=W.dtype, device=W.device, generator=generator)
    right = torch.linalg.qr((mixing @ rows).T).Q.T
    left = W @ right.T
    exact = (left @ right - W).norm(dim=1) <= 1e-10 * sizes
    return (left, right) if bool(exact.all()) else None


# Of networks that were given many rows, for as long as they live.
_quick: "WeakKeyDictionary[Network, Quick]" = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Network:
    """A plain feed-forward network on original features: what is left once training is over.

    Inner layers may be given as blocks. The first has at most ``rank`` directions, if that is
    known. A network equals itself alone, so that it can be looked up.
    """

    weights: tuple[Layer, ...]
    activation: str
    rank: int | None = None

    @property
    def n_shipped(self) -> int:
        """Numbers that must be stored to predict."""
        return sum(W.numel() for W in self.weights)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs, hidden widths, outputs."""
        return (inputs_of(self.weights[0]), *map(outputs_of, self.weights))

    def to(self, device: torch.device | str) -> "Network":
        """A copy of this network on another device."""
        return Network(tuple(W.to(device) for W in self.weights), self.activation, self.rank)

    def __call__(self, X: Shaped[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Raw outputs for rows of original features of any type, in the type of the weights."""
        if X.numel() * self.weights[0].shape[1] >= MUCH_WORK:
            quick = _quick.get(self)
            if quick is None:
                quick = _quick[self] = Quick.of(self)
            if X.dtype != torch.float32 or not quick.suits_float32(X, self.activation):
                X = X.to(self.weights[0].dtype)
            return quick(X, self.activation).to(self.weights[0].dtype)
        X = X.to(self.weights[0].dtype)
        few = len(X) <= FEW_ROWS and X.device.type == "cpu"
        return propagate(X, self.weights, self.activation, affine_of_few if few else affine)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        return {str(layer): W for layer, W in enumerate(self.weights)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], activation: str) -> "Network":
        """The network that ``tensors`` came from."""
        return cls(tuple(tensors[str(layer)] for layer in range(len(tensors))), activation)


def mean_network(networks: Sequence[Network]) -> Network:
    """One plain network whose outputs are the mean of those of all, which have no blocks yet.

    Hidden units stand side by side: first layers next to each other, inner ones as blocks, last
    layers above each other and divided by their number.
    """
    if len(networks) == 1:
        return networks[0]
    first, *inner, last = (
        list(layer) for layer in zip(*(n.weights for n in networks), strict=True)
    )
    blocks = [torch.stack(layer) for layer in inner]
    top = torch.cat([sum(W[:1] for W in last), *(W[1:] for W in last)]) / len(networks)
    ranks = [network.rank for network in networks]
    rank = None if None in ranks else sum(r for r in ranks if r is not None)
    return Network((torch.cat(first, 1), *blocks, top), networks[0].activation, rank)
