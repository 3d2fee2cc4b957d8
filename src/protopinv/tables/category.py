"""Columns of categories: how they are recognised, encoded, grown and checked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from protopinv.tables import ngrams
from protopinv.tables.columns import Kind, LeftOut
from protopinv.tables.parts import Look, Part
from protopinv.tables.text import has_names
from protopinv.tables.values import Numbers, Seen, Values
from protopinv.words import MANY, is_gap

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNKNOWN = -1.0
# So many values get a column each, and so many are told apart at all.
FEW_VALUES, MOST_VALUES = 30, 10_000
# A value that is seen less often shares a column with others like it.
LEAST_SEEN = 3
# A value that was never seen counts as the known one that is most like it, if their n-grams have
# this cosine.
LEAST_SIMILAR = 0.5


@dataclass(frozen=True, eq=False)
class Category(Kind):
    """One of some texts. ``vectors`` has a row of numbers for each, one for others, one for gaps.

    One column for each while there are few of them: then a vector has a single one. For many the
    vectors are what the targets were like on average. ``common`` is the place of the commonest.

    Where many values share character n-grams, as job titles do, the first ``n_ngrams`` columns of
    the vectors say which, and a value that was never seen counts as the one most like it.
    """

    name: str
    values: tuple[str, ...]
    vectors: Numbers
    names: tuple[str, ...]
    common: int = 0
    gaps: bool = False
    n_ngrams: int = 0

    kind = "category"
    ARRAYS = ("vectors",)
    NEWER = ("n_ngrams",)

    @classmethod
    def recognised(cls, seen: Seen) -> Self | LeftOut:
        """Whatever is no number and no date; names are left out, unless a user says otherwise."""
        counts, gaps = seen.counts, seen.gaps > 0
        if has_names(seen):
            why = (
                "nearly every row has a text of its own, and these share no n-grams; say that it "
                "is a category to keep it"
            )
            share = seen.share_of(seen.as_numbers)
            if share >= MANY:
                why = (
                    f"{share:.0%} of its values are numbers, and nearly all must be; say that it "
                    "is a number to take the others as gaps"
                )
            return LeftOut(seen.name, why)
        # the commonest first, and among equals in the order of the alphabet
        values = tuple(sorted(counts, key=lambda value: (-counts[value], value)))
        if len(values) == 1 and not gaps:
            return LeftOut(seen.name, f"it is always {values[0]!r:.40}")
        if len(values) > MOST_VALUES:
            seen.note(f"the commonest {MOST_VALUES} of {len(values)} values count")
        values = values[:MOST_VALUES]
        n_own = sum(counts[value] >= LEAST_SEEN for value in values) or len(values)
        if n_own > FEW_VALUES:  # without averages, until the targets are known
            vectors = _by_ngrams(values)
            n = vectors.shape[1]
            return cls(seen.name, values, vectors, ngrams.names(seen.name, n), 0, gaps, n)
        # in the order of the alphabet, which is how people look for them
        own = sorted(values[:n_own])
        each, common = (*own, *values[n_own:]), own.index(values[0])
        return cls.one_hot(seen.name, each, n_own, gaps=gaps, common=common)

    @classmethod
    def one_hot(
        cls, name: str, values: tuple[str, ...], n_own: int, *, gaps: bool, common: int = 0
    ) -> Self:
        """A column for each of the first ``n_own`` values, one for the others, and one for gaps.

        Values that were never seen share the column of the others, or have none.
        """
        n, has_others = len(values), n_own < len(values)
        names = [f"{name} = {value}" for value in values[:n_own]]
        vectors = np.zeros((n + 2, n_own + has_others + gaps))
        vectors[np.arange(n_own), np.arange(n_own)] = 1
        if has_others:
            vectors[n_own : n + 1, n_own] = 1
            names.append(f"{name} = any other")
        if gaps:
            vectors[n + 1, -1] = 1
            names.append(f"{name} is missing")
        return cls(name, values, vectors, tuple(names), common, gaps)

    @property
    def n_waiting(self) -> int:
        """All values, while vectors are still to be made of the targets."""
        return len(self.values) if len(self.names) == self.n_ngrams else 0

    @cached_property
    def lookup(self) -> dict[str, float]:
        """Where each value is in the list."""
        return {value: float(place) for place, value in enumerate(self.values)}

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return float(self.common)

    @cached_property
    def known_ngrams(self) -> tuple[Numbers, "csr_array"]:
        """The weight of each n-gram, and the weighted n-grams of each value."""
        counts = ngrams.hashed(self.values)
        weights = ngrams.rarity(counts)
        return weights, ngrams.weighted(counts, weights)

    @property
    def is_one_hot(self) -> bool:
        """Whether every vector has at most a single one, beside its n-grams."""
        vectors = self.vectors[:, self.n_ngrams :]
        ones = (vectors == 1).sum(axis=1)
        return bool(((vectors != 0).sum(axis=1) == ones).all() and (ones <= 1).all())

    @property
    def story(self) -> str:
        """What it was recognised as, in a few words."""
        few = ", ".join(
            value if len(value) < 20 else f"{value[:17]}..." for value in self.values[:3]
        )
        how = "a column each" if self.is_one_hot else "by what the target is on average"
        more = ", ..." if len(self.values) > 3 else ""
        how += ", and by the n-grams of its text" if self.n_ngrams else ""
        return f"category, {len(self.values)} values ({few}{more}), {how}"

    def code(self, values: Values) -> Numbers:
        """The place of each value, or of the one that is most like it."""
        lookup, texts = self.lookup, values.as_texts()
        codes = {
            text: np.nan if is_gap(text) else lookup.get(str(text).strip(), UNKNOWN)
            for text in set(texts)
        }
        unknown = [str(text) for text, code in codes.items() if code == UNKNOWN]
        if self.n_ngrams and unknown:
            codes.update(zip(unknown, self.most_similar(unknown).tolist(), strict=True))
        return np.array([codes[text] for text in texts], dtype=np.float64)

    def most_similar(self, texts: Sequence[str]) -> Numbers:
        """The place of the value whose n-grams are most like those of each text, or UNKNOWN."""
        weights, rows = self.known_ngrams
        places, cosines = ngrams.nearest(ngrams.weighted(ngrams.hashed(texts), weights), rows)
        return np.where(cosines >= LEAST_SIMILAR, places, UNKNOWN)

    def places(self, code: Numbers) -> NDArray[np.int64]:
        """Which vector belongs to each code."""
        return Look(self.vectors).places(code)

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The vector of each value."""
        return (Look(self.vectors),)

    def with_averages(self, averages: Numbers, names: tuple[str, ...]) -> Self:
        """With averages of the targets: for each value, any other, and gaps."""
        vectors = np.concatenate([self.vectors[:, : self.n_ngrams], averages], axis=1)
        return replace(self, vectors=vectors, names=(*self.names[: self.n_ngrams], *names))

    def without_targets(self) -> Self:
        """With a column for each of its commonest values."""
        plain = self.one_hot(self.name, self.values, FEW_VALUES, gaps=self.gaps)
        return self.with_averages(plain.vectors, plain.names)

    def grown(self, values: Values) -> Self:
        """With values that are there as often as a fit asks of them, after those that are known.

        Values that get an average of the targets have that of any other until it is fitted. Their
        n-grams are those of the value that is most like them.
        """
        seen, own, most = Seen(self.name, "category"), set(self.values), MOST_VALUES
        if self.is_one_hot:  # rare values share a column
            ones = self.vectors[:, self.n_ngrams :]
            has_own = (ones[:-2] != ones[-2]).any(axis=1).tolist()
            own, most = (
                {value for value, has in zip(self.values, has_own, strict=True) if has},
                FEW_VALUES,
            )
        seen.add(values)
        often = {text: -n for text, n in seen.counts.items() if n >= LEAST_SEEN and text not in own}
        # the commonest first, as in a fit
        new = sorted(often, key=lambda text: (often[text], text))[: max(0, most - len(own))]
        if not new:
            return self
        more = [text for text in new if text not in self.lookup]
        all_values = (*self.values, *more)
        vectors = np.insert(self.vectors, [len(self.values)] * len(more), self.vectors[-2], axis=0)
        if self.n_ngrams and more:
            similar = self.vectors[self.places(self.most_similar(more)), : self.n_ngrams]
            vectors[len(self.values) : -2, : self.n_ngrams] = similar
        names = self.names
        if self.is_one_hot:
            vectors = np.pad(vectors, ((0, 0), (0, len(new))))
            places = [all_values.index(text) for text in new]
            vectors[places, self.n_ngrams :] = 0
            vectors[places, len(names) + np.arange(len(new))] = 1
            names = (*names, *(f"{self.name} = {text}" for text in new))
        return replace(self, values=all_values, vectors=vectors, names=names)

    def check(self) -> None:
        """Raise ValueError for values, vectors and names that do not belong together."""
        if len(set(self.values)) != len(self.values) or not self.values or not self.names:
            raise ValueError("values of a category that are not told apart")
        if self.vectors.shape != (len(self.values) + 2, len(self.names)):
            raise ValueError("vectors of other values")
        if not 0 <= self.common < len(self.values):
            raise ValueError("the commonest value is none of them")
        if not 0 <= self.n_ngrams < len(self.names):
            raise ValueError("n-grams of a category and nothing else")


def _by_ngrams(values: tuple[str, ...]) -> Numbers:
    """Vectors of the n-grams that values share, of no length if they share none.

    Any other value, and a gap, have the mean.
    """
    counts = ngrams.hashed(values)
    rows = ngrams.weighted(counts, ngrams.rarity(counts))
    if not ngrams.are_shared(rows):
        return np.zeros((len(values) + 2, 0))
    vectors = (rows @ ngrams.directions(rows)).round(ngrams.DIGITS)
    return np.concatenate([vectors, np.repeat(vectors.mean(axis=0)[None], 2, axis=0)])
