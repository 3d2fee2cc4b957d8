import pytest
import torch

from protopinv.bank import Bank
from protopinv.train.stopping import BestBank


def bank_with(value: float, dtype: torch.dtype) -> Bank:
    ones = torch.full((2, 2), value, dtype=dtype)
    return Bank(ones, (ones,), ones, ones[0], torch.zeros(2, dtype=torch.bool))


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
def test_the_best_bank_wins(
    dtype: torch.dtype, offers: list[tuple[float, float]], winner: int
) -> None:
    best = BestBank(bank_with(-1.0, dtype))
    for epoch, (score, loss) in enumerate(offers):
        numbers = (torch.tensor(number, dtype=dtype) for number in (score, loss))
        best.offer(bank_with(float(epoch), dtype), *numbers, epoch)
    assert best.epoch_on_host() == winner
    assert all((tensor == winner).all() for tensor in best.bank.trained)


def test_before_any_offer_it_is_the_first_bank() -> None:
    best = BestBank(bank_with(7.0, torch.float32))
    assert best.epoch_on_host() is None
    assert (best.bank.inputs == 7).all()
