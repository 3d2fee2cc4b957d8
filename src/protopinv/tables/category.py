"""Columns of categories: how they are recognised, encoded, grown and checked."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.columns import Kind, LeftOut
from protopinv.tables.parts import Look, Part
from protopinv.tables.values import Numbers, Seen, Values
from protopinv.words import MANY, is_gap

UNKNOWN = -1.0
# So many values get a column each, and so many are told apart at all.
FEW_VALUES, MOST_VALUES = 30, 10_000
# A value that is seen less often shares a column with others like it.
LEAST_SEEN = 3
# Text that is different in nearly every row is a name: it says nothing of the next row.
NAMES_SHARE, NAMES_LEAST = 0.5, 50


@dataclass(frozen=True, eq=False)
class Category(Kind):
    """One of some texts. ``vectors`` has a row of numbers for each, one for others, one for gaps.

    One column for each while there are few of them: then a vector has a single one. For many the
    vectors are what the targets were like on average. ``common`` is the place of the commonest.
    """

    name: str
    values: tuple[str, ...]
    vectors: Numbers
    names: tuple[str, ...]
    common: int = 0
    gaps: bool = False

    kind = "category"
    ARRAYS = ("vectors",)

    @classmethod
    def recognised(cls, seen: Seen) -> Self | LeftOut:
        """Whatever is no number and no date; names are left out, unless a user says otherwise."""
        counts, gaps = seen.counts, seen.gaps > 0
        has_names = len(counts) > max(NAMES_LEAST, NAMES_SHARE * counts.total())
        if seen.held == "text" and (seen.is_cut or has_names):
            why = "nearly every row has a text of its own; say that it is a category to keep it"
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
        if n_own > FEW_VALUES:  # in vectors of no length, until the targets are known
            return cls(seen.name, values, np.zeros((len(values) + 2, 0)), (), gaps=gaps)
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
        return 0 if self.names else len(self.values)

    @cached_property
    def lookup(self) -> dict[str, float]:
        """Where each value is in the list."""
        return {value: float(place) for place, value in enumerate(self.values)}

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return float(self.common)

    @property
    def is_one_hot(self) -> bool:
        """Whether every vector has at most a single one."""
        ones = (self.vectors == 1).sum(axis=1)
        return bool(((self.vectors != 0).sum(axis=1) == ones).all() and (ones <= 1).all())

    @property
    def story(self) -> str:
        """What it was recognised as, in a few words."""
        few = ", ".join(
            value if len(value) < 20 else f"{value[:17]}..." for value in self.values[:3]
        )
        how = "a column each" if self.is_one_hot else "by what the target is on average"
        more = ", ..." if len(self.values) > 3 else ""
        return f"category, {len(self.values)} values ({few}{more}), {how}"

    def code(self, values: Values) -> Numbers:
        """The place of each value."""
        lookup, texts = self.lookup, values.as_texts()
        codes = {
            text: np.nan if is_gap(text) else lookup.get(str(text).strip(), UNKNOWN)
            for text in set(texts)
        }
        return np.array([codes[text] for text in texts], dtype=np.float64)

    def places(self, code: Numbers) -> NDArray[np.int64]:
        """Which vector belongs to each code."""
        return Look(self.vectors).places(code)

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The vector of each value."""
        return (Look(self.vectors),)

    def with_averages(self, averages: Numbers, names: tuple[str, ...]) -> Self:
        """With averages of the targets: for each value, any other, and gaps."""
        return replace(self, vectors=averages, names=names)

    def without_targets(self) -> Self:
        """With a column for each of its commonest values."""
        return self.one_hot(self.name, self.values, FEW_VALUES, gaps=self.gaps)

    def grown(self, values: Values) -> Self:
        """With values that are there as often as a fit asks of them, after those that are known.

        Values that get an average of the targets have that of any other until it is fitted.
        """
        seen, own, most = Seen(self.name, "category"), set(self.values), MOST_VALUES
        if self.is_one_hot:  # rare values share a column
            has_own = (self.vectors[:-2] != self.vectors[-2]).any(axis=1).tolist()
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
        all_values = (*self.values, *(text for text in new if text not in self.lookup))
        *own_vectors, other, gap = self.vectors
        vectors = np.stack(
            [*own_vectors, *[other] * (len(all_values) - len(own_vectors)), other, gap]
        )
        names = self.names
        if self.is_one_hot:
            vectors = np.pad(vectors, ((0, 0), (0, len(new))))
            places = [all_values.index(text) for text in new]
            vectors[places] = 0
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
