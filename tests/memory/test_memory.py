"""The memory of rows: its sums are exact, and rows drawn from it are like those that are gone."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from protopinv.errors import ConfigError
from protopinv.memory import Memory, begin_memory, least_limit
from protopinv.memory.tail import TAIL_ROWS

N, M, GROUPS = 900, 6, 3


def rows(seed: int = 0, n: int = N, m: int = M) -> tuple[Tensor, Tensor, Tensor]:
    generator = Generator().manual_seed(seed)
    groups = torch.arange(n) % GROUPS
    Z = torch.randn(n, m, generator=generator, dtype=torch.float64)
    Z = Z @ torch.randn(m, m, generator=Generator().manual_seed(9), dtype=torch.float64)
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    return Z + 3 * groups[:, None], groups, weight


def begun(Z: Tensor, groups: Tensor, weight: Tensor, limit: int | None = 2_000) -> Memory:
    generator = Generator().manual_seed(0)
    return begin_memory(Z, groups, weight, n_groups=GROUPS, limit=limit, generator=generator)


def ones(Z: Tensor) -> Tensor:
    return Z.new_ones(len(Z))


def moments(memory: Memory, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mass, mean and scatter of a group along the directions, from those of its parts."""
    parts = memory.gaussians.taken(memory.gaussians.group == group)
    mass = parts.mass.sum()
    mean = parts.mass @ parts.mean / mass
    off = parts.mean - mean
    return mass, mean, parts.scatter.sum(0) + off.T @ (off * parts.mass[:, None])


@pytest.mark.parametrize("n_calls", [1, 3, 30])
def test_sums_are_those_of_all_rows_however_they_came(n_calls: int) -> None:
    Z, groups, weight = rows()
    pieces = zip(Z.chunk(n_calls), groups.chunk(n_calls), weight.chunk(n_calls), strict=True)
    memory = begun(*next(pieces))
    for piece in pieces:
        memory = memory.added(*piece, GROUPS, Generator().manual_seed(1))
    for group in range(GROUPS):
        chosen = groups == group
        X, w = Z[chosen], weight[chosen]
        mean = w @ X / w.sum()
        scatter = (X - mean).T @ ((X - mean) * w[:, None])
        for found, wanted in zip(moments(memory, group), (w.sum(), mean, scatter), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-9)


def test_hundreds_of_calls_lose_no_digits() -> None:
    Z, groups, weight = rows(n=1_200)
    Z = Z + 1e4
    memory = begun(Z[:300], groups[:300], weight[:300])
    for start in range(300, 1_200, 3):
        piece = slice(start, start + 3)
        generator = Generator().manual_seed(start)
        memory = memory.added(Z[piece], groups[piece], weight[piece], GROUPS, generator)
    X, w = Z[groups == 1], weight[groups == 1]
    mean = w @ X / w.sum()
    _, found, scatter = moments(memory, 1)
    torch.testing.assert_close(found, mean, rtol=1e-13, atol=0)
    wanted = (X - mean).T @ ((X - mean) * w[:, None])
    torch.testing.assert_close(scatter, wanted, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("limit", [200, 700, 5_000])
def test_the_limit_is_kept(limit: int) -> None:
    memory = begun(*rows(), limit=limit)
    assert memory.n_numbers <= limit
    again = memory.added(*rows(1), GROUPS, Generator().manual_seed(1))
    assert again.n_numbers <= limit


@pytest.mark.parametrize("m", [1, 2, 6, 60])
def test_the_least_limit_is_kept_and_a_smaller_one_is_refused(m: int) -> None:
    least = least_limit(m, GROUPS)
    Z, groups, weight = rows(m=m)
    assert begun(Z, groups, weight, limit=least).n_numbers <= least
    with pytest.raises(ConfigError, match=rf"here {least} numbers\. Got memory={least - 1}"):
        begun(Z, groups, weight, limit=least - 1)
    few = begun(Z[:9], groups[:9], weight[:9], limit=None)
    assert few.n_numbers <= few.limit


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made in here."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.numbers = max([self.numbers, *(t.numel() for t in made)])
        return result


@pytest.mark.parametrize("n_new", [200, 20_000])
def test_directions_are_turned_in_little_room(n_new: int) -> None:
    """Neither a covariance of every part nor a copy of the rows is written out."""
    m, n = 100, 3_000
    Z = torch.randn(n_new + n, m, generator=Generator().manual_seed(0))
    groups, weight = torch.arange(n) % GROUPS, torch.ones(n_new + n)
    memory = begun(Z[:n], groups, weight[:n], limit=60_000)
    more = Z[n:], weight[n:]
    with Largest() as largest:
        memory.turned(*more)
    assert largest.numbers <= max(min(n_new, TAIL_ROWS) * m, memory.gaussians.scatter.numel())


def test_no_part_has_so_few_rows_that_they_could_be_told() -> None:
    memory = begun(*rows())
    for seed in range(5):
        few = rows(seed, n=6)
        memory = memory.added(*few, GROUPS, Generator().manual_seed(seed))
    assert len(memory.gaussians) > GROUPS
    assert float(memory.gaussians.rows.min()) >= 25
    assert float(memory.gaussians.rows.sum()) == N + 30


def test_forgetting_a_group_leaves_the_others_as_if_it_had_never_been() -> None:
    Z, groups, weight = rows()
    memory = begun(Z, groups, weight, limit=5_000).without(1)
    for old, new in ((0, 0), (2, 1)):
        chosen = groups == old
        torch.testing.assert_close(moments(memory, new)[0], weight[chosen].sum())
        mean = weight[chosen] @ Z[chosen] / weight[chosen].sum()
        torch.testing.assert_close(moments(memory, new)[1], mean)
    assert memory.gaussians.group.unique().tolist() == [0, 1]


def test_groups_can_be_renumbered_when_others_come_between() -> None:
    memory = begun(*rows())
    moved = memory.renumbered(torch.tensor([0, 2, 5]), 6)
    assert moved.gaussians.group.unique().tolist() == [0, 2, 5]
    torch.testing.assert_close(moved.masses(6)[[0, 2, 5]], memory.masses(3))


def test_a_decay_counts_old_rows_less_and_leaves_what_they_are_like() -> None:
    memory = begun(*rows())
    less = memory.weakened(0.25)
    torch.testing.assert_close(less.masses(3), 0.25 * memory.masses(3))
    torch.testing.assert_close(less.gaussians.mean, memory.gaussians.mean)
    for seen in (memory, less):
        covariance = seen.gaussians.scatter / seen.gaussians.mass[:, None, None]
        torch.testing.assert_close(
            covariance, memory.gaussians.scatter / memory.gaussians.mass[:, None, None]
        )


def test_what_is_forgotten_again_and_again_is_gone() -> None:
    Z, groups, weight = rows()
    memory = begun(Z, groups, weight)
    late = groups == 2
    for seed in range(60):
        memory = memory.weakened(1e-9)
        generator = Generator().manual_seed(seed)
        memory = memory.added(Z[late], groups[late], weight[late], GROUPS, generator)
    assert memory.gaussians.group.unique().tolist() == [2]
    drawn, _ = memory.drawn(100, Generator().manual_seed(0))
    assert bool(drawn.isfinite().all())
    torch.testing.assert_close(moments(memory, 2)[0], weight[late].sum(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("limit", [5_000, 250], ids=["all directions", "with a tail"])
def test_drawn_rows_have_the_moments_of_those_that_are_gone(limit: int) -> None:
    Z, groups, weight = rows(n=3_000, m=12)
    memory = begun(Z, groups, torch.ones_like(weight), limit)
    assert (memory.basis is None) == (limit == 5_000)
    drawn, drawn_groups = memory.drawn(60_000, Generator().manual_seed(3))
    for group in range(GROUPS):
        real, like = Z[groups == group], drawn[drawn_groups == group].double()
        assert len(like) == pytest.approx(20_000, abs=1)
        torch.testing.assert_close(like.mean(0), real.mean(0), rtol=0, atol=0.1)
        ratio = like.var(0) / real.var(0)
        assert 0.75 < float(ratio.min()) < float(ratio.max()) < 1.25


def test_turned_directions_keep_what_was_known_along_the_old_ones() -> None:
    Z, groups, weight = rows(n=3_000, m=12)
    memory = begun(Z, groups, weight, limit=250)
    wide = torch.zeros(500, 12, dtype=torch.float64)
    wide[:, 4] = torch.linspace(-90, 90, 500)
    turned = memory.turned(wide, torch.ones(500, dtype=torch.float64))
    assert float(turned.basis[4].square().sum()) > 0.99
    torch.testing.assert_close(turned.masses(3), memory.masses(3))
    eye = torch.eye(turned.n_directions, dtype=torch.float64)
    torch.testing.assert_close(turned.basis.T @ turned.basis, eye)
    for group in range(GROUPS):
        before, after = (
            m.basis @ moments(m, group)[1] + m.tail.mean[group] for m in (memory, turned)
        )
        torch.testing.assert_close(after, before)


def test_a_cut_keeps_what_lies_along_the_directions() -> None:
    Z, groups, weight = rows(n=3_000, m=12)
    memory = begun(Z, groups, weight, limit=250)
    assert memory.cut(Z) is Z
    from dataclasses import replace

    cut = replace(memory, is_cut=True).cut(Z)
    torch.testing.assert_close(cut @ memory.basis, Z @ memory.basis)
    assert torch.linalg.matrix_rank(cut - cut.mean(0)) == memory.n_directions
    drawn, _ = replace(memory, is_cut=True).drawn(100, Generator().manual_seed(0))
    torch.testing.assert_close(replace(memory, is_cut=True).cut(drawn), drawn, rtol=0, atol=1e-4)


@pytest.mark.parametrize("limit", [5_000, 250])
def test_tensors_and_back_is_the_identity(limit: int) -> None:
    memory = begun(*rows(m=12), limit)
    back = Memory.from_tensors(memory.tensors(), limit=limit, is_cut=False, fitted=memory.fitted)
    assert back.fault(12, GROUPS) is None
    for name, tensor in memory.tensors().items():
        assert torch.equal(back.tensors()[name], tensor)
    assert "features" in str(back.fault(11, GROUPS))
    assert "groups" in str(back.fault(12, 1))


def test_parts_of_a_group_as_one_have_the_sums_of_all_its_rows() -> None:
    memory = begun(*rows())
    whole = memory.gaussians.by_group(GROUPS + 1)
    for group in range(GROUPS):
        sums = whole.mass[group], whole.mean[group], whole.scatter[group]
        for found, wanted in zip(sums, moments(memory, group), strict=True):
            torch.testing.assert_close(found, wanted)
    assert float(whole.mass[GROUPS]) == 0


@pytest.mark.parametrize("limit", [2_000, 60])
def test_rows_like_those_before_are_told_from_others(limit: int) -> None:
    memory = begun(*rows(), limit=limit)
    Z, groups, _ = rows(1)
    assert float(memory.unlike(Z, groups, ones(Z), GROUPS).max()) < 0.2
    moved = memory.unlike(Z + 6 * Z.std(0) * (groups == 1)[:, None], groups, ones(Z), GROUPS)
    assert float(moved[1]) > 0.9
    assert float(moved[[0, 2]].max()) < 0.2
    some = groups != 2
    absent = memory.unlike(Z[some], groups[some], ones(Z[some]), GROUPS + 1)
    assert absent[2] == 1
    assert absent[GROUPS] == 1


def test_weights_say_where_rows_are() -> None:
    Z, groups, _ = rows(1)
    memory = begun(*rows())
    far = torch.arange(N) % 2 == 0
    moved = torch.where(far[:, None], Z + 0.5 * Z.std(0), Z)
    heavy = torch.where(far, 50.0, 1.0).double()
    times = heavy.long()
    found = memory.unlike(moved, groups, heavy, GROUPS)
    repeated = moved.repeat_interleave(times, 0), groups.repeat_interleave(times)
    torch.testing.assert_close(found, memory.unlike(*repeated, ones(repeated[0]), GROUPS))
    assert float((memory.unlike(moved, groups, ones(Z), GROUPS) - found).abs().max()) > 0.01


def test_a_handful_of_rows_does_not_look_like_another_world() -> None:
    memory = begun(*rows())
    found = [
        float(memory.unlike(Z[:15], groups[:15], ones(Z[:15]), GROUPS).mean())
        for Z, groups, _ in (rows(seed) for seed in range(1, 11))
    ]
    assert sum(found) / len(found) < 0.2


def test_groups_that_are_favoured_are_drawn_more_often_and_others_not_at_all() -> None:
    memory = begun(*rows())
    favour = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    _, groups = memory.drawn(400, Generator().manual_seed(0), favour)
    share = memory.masses(GROUPS) * favour
    wanted = share / share.sum() * 400
    assert len(groups) == 400
    assert (groups.bincount(minlength=GROUPS) - wanted).abs().max() <= 2


def test_what_a_fit_has_seen_is_forgotten_with_the_rest() -> None:
    memory = begun(*rows())
    assert memory.fitted == pytest.approx(float(memory.gaussians.mass.sum()))
    more = memory.added(*rows(1), GROUPS, Generator().manual_seed(1))
    assert more.fitted == memory.fitted
    assert more.weakened(0.25).fitted == pytest.approx(memory.fitted / 4)
    left = more.without(0).without(0)
    assert left.fitted <= float(left.gaussians.mass.sum()) + 1e-9


@pytest.mark.parametrize("limit", [5_000, 80], ids=["all directions", "with a tail"])
def test_a_wider_memory_is_that_of_rows_with_zeros(limit: int) -> None:
    Z, groups, weight = rows()
    memory, places = begun(Z, groups, weight, limit), torch.tensor([0, 1, 3, 4, 6, 7])
    wider = memory.widened(places, 8)
    assert (memory.basis is None) == (limit == 5_000)
    assert wider.fault(8, GROUPS) is None
    old, found = (each.drawn(300, Generator().manual_seed(2))[0] for each in (memory, wider))
    assert old.shape == (300, 6)
    assert float(found[:, [2, 5]].abs().max()) < 1e-6
    if wider.basis is not None:
        whole = Z.new_zeros(N, 8).index_copy_(1, places, Z)
        whole[:, [2, 5]] = torch.randn(N, 2, generator=Generator().manual_seed(0)).double()
        kept = replace(wider, is_cut=True).cut(whole)
        torch.testing.assert_close(kept[:, [2, 5]], whole[:, [2, 5]])
        torch.testing.assert_close(kept[:, places], replace(memory, is_cut=True).cut(Z))
    for group in range(GROUPS):
        mass, mean, scatter = moments(wider, group)
        along = places if wider.basis is None else torch.arange(memory.n_directions)
        for known, now in zip(
            moments(memory, group), (mass, mean[along], scatter[along][:, along]), strict=True
        ):
            torch.testing.assert_close(now, known)


def test_it_does_not_matter_how_many_tails_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = begun(*rows(), limit=80)
    monkeypatch.setattr("protopinv.memory.tail.TAIL_ROWS", 7)
    apart = begun(*rows(), limit=80)
    assert whole.tail is not None
    torch.testing.assert_close(apart.tail.mean, whole.tail.mean)
    torch.testing.assert_close(apart.tail.scatter, whole.tail.scatter)


def uncorrelated() -> tuple[Tensor, Tensor, Tensor]:
    """Rows that a memory of two directions describes: features on their own, two of them wide."""
    _, groups, weight = rows()
    widths = torch.tensor([6.0, 0.4, 5.0, 0.5, 0.3, 0.2]).double()
    noise = torch.randn(N, M, generator=Generator().manual_seed(4), dtype=torch.float64)
    return noise * widths + 2.0, groups, weight


@pytest.mark.parametrize("limit", [2_000, 85])
def test_moments_of_features_are_those_of_all_rows(limit: int) -> None:
    Z, groups, weight = uncorrelated()
    memory = begun(Z, groups, weight, limit)
    assert (memory.basis is None) == (limit == 2_000)
    mass, mean, variance = memory.moments()
    expected = weight @ Z / weight.sum()
    assert mass == pytest.approx(float(weight.sum()))
    torch.testing.assert_close(mean, expected)
    spread = weight @ (Z - expected).square() / weight.sum()
    # across the directions a memory holds variances of single features alone
    torch.testing.assert_close(variance, spread, rtol=1e-6 if memory.basis is None else 0.1, atol=0)


@pytest.mark.parametrize("limit", [2_000, 85])
def test_a_memory_in_other_units_is_that_of_rows_in_other_units(limit: int) -> None:
    Z, groups, weight = uncorrelated()
    factors = torch.tensor([1.0, 0.01, 1.0, 0.2, 1.0, 3.0]).double()
    memory = begun(Z, groups, weight, limit).rescaled(factors)
    mass, mean, variance = begun(Z, groups, weight, limit).moments()
    assert memory.fault(M, GROUPS) is None
    assert memory.moments()[0] == mass
    torch.testing.assert_close(memory.moments()[1], mean * factors)
    rtol = 1e-6 if memory.basis is None else 0.1
    torch.testing.assert_close(memory.moments()[2], variance * factors.square(), rtol=rtol, atol=0)
    drawn = memory.drawn(20_000, Generator().manual_seed(1))[0].double()
    torch.testing.assert_close(drawn.mean(0), mean * factors, rtol=0.05, atol=0.05)
