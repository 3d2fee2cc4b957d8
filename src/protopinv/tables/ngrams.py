"""Character n-grams: what texts share in words and stems, as rows of numbers.

Every three letters in a row within a word are hashed to a column and weighted by how few texts
have them (tf-idf). Rows are reduced to a few columns by truncated SVD.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # it takes a while to import, and most tables have no such text
    from scipy.sparse import csr_array

Numbers = NDArray[np.float64]

# Both belong to the format of model files.
LETTERS, BUCKETS = 3, 1024
# Texts share n-grams if half of them have another one that is so similar (cosine): names of streets
# and firms reach 0.4 to 1, letters at random 0.3.
LEAST_SHARED = 0.4
# So many texts are compared with all to find out, and so many at once.
COMPARED, AT_ONCE = 500, 500
# Columns of the SVD: at most so many, and so many texts for each.
MOST_DIMENSIONS, TEXTS_A_DIMENSION = 30, 4
# More than asked for, and repeated products, make a randomised SVD exact enough.
MORE, PRODUCTS = 10, 4
DIGITS = 6
# Columns of smaller singular values than this share of the first are rounding noise.
LEAST_SPREAD = 1e-3


def hashed(texts: Sequence[str]) -> "csr_array":
    """How often each n-gram is in each text, as 1 + log: a row for a text, a column for a bucket.

    N-grams lie within words; a word that has digits is a number or an id, and is left out.
    """
    buckets: dict[str, list[int]] = {}
    counts = []
    for text in texts:
        words = text.lower().split()
        for word in words:
            if word not in buckets:
                buckets[word] = _buckets(word)
        counts.append(Counter(chain.from_iterable(buckets[word] for word in words)))
    from scipy.sparse import csr_array

    rows = np.repeat(np.arange(len(counts)), [len(each) for each in counts])
    columns = np.fromiter(chain.from_iterable(counts), dtype=np.int64)
    data = np.fromiter(chain.from_iterable(each.values() for each in counts), dtype=np.float64)
    return csr_array((1 + np.log(data), (rows, columns)), shape=(len(counts), BUCKETS))


def _buckets(word: str) -> list[int]:
    """The bucket of every n-gram of a word, which begins and ends with a blank."""
    if any(letter.isdigit() for letter in word):
        return []
    padded = f" {word} "
    grams = (padded[at : at + LETTERS] for at in range(len(padded) - LETTERS + 1))
    return [crc32(gram.encode(errors="replace")) % BUCKETS for gram in grams]


def names(column: str, n: int) -> tuple[str, ...]:
    """Names of the columns that a column of text is reduced to."""
    return tuple(f"{column}: n-grams {number}" for number in range(1, n + 1))


def rarity(counts: "csr_array") -> Numbers:
    """The weight of each bucket: log(texts / texts that have it), 0 where only one has."""
    texts = np.bincount(counts.indices, minlength=BUCKETS)
    return np.where(texts > 1, np.log(counts.shape[0] / np.maximum(texts, 1)), 0.0)


def weighted(counts: "csr_array", weights: Numbers | float = 1.0) -> "csr_array":
    """Rows of weighted n-grams, of length one; zero where nothing is known of a text."""
    from scipy.sparse import csr_array, diags_array

    rows = counts * weights
    length = np.sqrt(rows.multiply(rows).sum(axis=1))
    return csr_array(diags_array(1 / np.where(length > 0, length, 1.0)) @ rows)


def nearest(rows: "csr_array", others: "csr_array") -> tuple[NDArray[np.int64], Numbers]:
    """For each row the most similar of some others, and how similar it is."""
    places, cosines = [np.empty(0, np.int64)], [np.empty(0)]
    for start in range(0, rows.shape[0], AT_ONCE):
        products = (rows[start : start + AT_ONCE] @ others.T).toarray()
        places.append(products.argmax(axis=1))
        cosines.append(products.max(axis=1))
    return np.concatenate(places), np.concatenate(cosines)


def are_shared(rows: "csr_array") -> bool:
    """Whether texts share n-grams, as job titles do, and hashes and ids do not."""
    n = rows.shape[0]
    step = max(1, n // COMPARED)
    own = np.arange(0, n, step)
    products = (rows[own] @ rows.T).toarray()
    products[np.arange(len(own)), own] = 0
    return bool(np.median(products.max(axis=1)) >= LEAST_SHARED)


def directions(rows: "csr_array") -> Numbers:
    """The first right singular vectors, such that reduced rows have length one on average.

    Signs and digits are the same on every machine, as far as can be: ranks compare their tables.
    """
    n = min(MOST_DIMENSIONS, rows.shape[0] // TEXTS_A_DIMENSION)
    sample: Any = np.random.default_rng(0).standard_normal((BUCKETS, n + MORE))
    for _ in range(PRODUCTS):
        sample, _ = np.linalg.qr(rows.T @ (rows @ sample))
    _, spread, turned = np.linalg.svd(rows @ sample, full_matrices=False)
    basis = sample @ turned[:n][spread[:n] > LEAST_SPREAD * spread[0]].T
    basis *= np.where(basis.sum(axis=0) < 0, -1.0, 1.0)
    length = np.sqrt(((rows @ basis) ** 2).sum() / rows.shape[0])
    return np.asarray((basis / max(length, np.finfo(np.float64).tiny)).round(DIGITS))
