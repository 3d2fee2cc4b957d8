import pytest
import torch
from torch import Tensor

from protopinv.train.state import Best, copied


def filled(value: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return torch.full((1, 2, 2), value, dtype=dtype), torch.full((1, 3), value, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("offers", "winner"),
    [
        ([(0.5, 1.0), (0.9, 2.0), (0.7, 0.1)], 1),  # the highest score
        ([(0.9, 1.0), (0.9, 2.0), (0.9, 0.5)], 2),  # of equal scores the lowest loss
        ([(0.6, 1.0), (0.6, 0.5), (0.6, 0.7)], 1),  # 0.6 and 0.9 round in opposite directions
        ([(0.9, 1.0), (float("nan"), 0.0)], 0),  # NaN never wins
        ([(0.9, 1.0), (0.9, 1.0)], 0),  # of equals the first
    ],
)
def test_the_best_wins(dtype: torch.dtype, offers: list[tuple[float, float]], winner: int) -> None:
    best = Best(filled(-1.0, dtype))
    for epoch, (score, loss) in enumerate(offers):
        numbers = (torch.tensor([number], dtype=dtype) for number in (score, loss))
        best.offer(filled(float(epoch), dtype), *numbers, epoch)
    assert best.epochs_on_host() == [winner]
    assert all((tensor == winner).all() for tensor in best.tensors)


def test_before_any_offer_it_is_the_first() -> None:
    first = filled(7.0, torch.float32)
    best = Best(first)
    first[0].zero_()
    assert best.epochs_on_host() == [None]
    assert (best.tensors[0] == 7).all()


def test_every_member_has_a_best_of_its_own() -> None:
    best = Best([torch.full((3, 2), -1.0)])
    scores = [[0.5, 0.9, float("nan")], [0.7, 0.1, float("nan")]]
    for epoch, score in enumerate(scores):
        best.offer([torch.full((3, 2), float(epoch))], torch.tensor(score), torch.zeros(3), epoch)
    assert best.epochs_on_host() == [1, 0, None]
    assert best.tensors[0][:, 0].tolist() == [1, 0, -1]


def test_copies_share_nothing() -> None:
    tensors = filled(1.0, torch.float64)
    kept = copied(tensors)
    for tensor in tensors:
        tensor.zero_()
    assert all((tensor == 1).all() for tensor in kept)
