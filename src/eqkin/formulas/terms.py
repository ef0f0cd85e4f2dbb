"""Terms of formulas: paths and trees of the outlines of their operator trees, and their statements.

    path    a leaf and its slots in up to four ancestors, once for each length from zero
    tree    an operator with everything below it, with an anonymous leaf for every variable
    form    a whole statement, in the last of `FORM_KINDS`: equal in any other of them, two statements are equal in it,
            unless only one is among the first four of its formula

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a tree adds up
the hashes of its operands, so operands that commute need not be sorted.

An outline is an operator tree without details that authors add or leave out. It has no arguments of functions
(`u(x, t)` is `u`), indices, accents, signs, ranges of sums and integrals, norms and transposes; every relation is `=`,
and a derivative is a quotient. Two ways to write a law often share their outline where their operator trees differ.

The inverse document frequency of a term was counted on the corpus from which eqkin's bundled table was made:

    idf = ln((1 + n) / (1 + df)) + 0.1

where df of the n formulas contain the term. Terms too rare for the table count as if `RARE_TERM_COUNT` formulas had
them. A term weighs its saturated count times the square root of its idf. The norms of a formula are the sums of the
squared weights of its terms, family by family. They are stored with 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.files import write_file
from eqkin.formulas.forest import Places, accumulate
from eqkin.formulas.hashing import FAMILY_BITS, Codes, combine_hashes, hash_strings
from eqkin.formulas.operators import FORM_KINDS, OperatorForest

# Their places are the numbers in `Terms.family`.
TERM_FAMILIES = ("path", "tree", "form")
# The first families make similarities; forms only find formulas.
COMPARED_FAMILIES = 2
# The bundled table of frequencies counts the hashes that come from these names.
_SEEDS = hash_strings(["outline path", "outline anytree", "operator form"])
_FORM = TERM_FAMILIES.index("form")
_FORM_KIND = np.array([len(FORM_KINDS) - 1], np.uint64)
# The document frequency that is assumed of a term that is not in the table.
RARE_TERM_COUNT = 4
# Terms of fewer formulas are not in the table.
_MIN_FORMULAS = 24
_MIN_IDF = 0.1
# More occurrences of a term in a formula weigh hardly more.
MAX_COUNTED = 16
SATURATED_COUNTS = np.array([2 * count / (count + 1) for count in range(MAX_COUNTED + 1)], np.float32)
# 8 bits are enough for norms up to 41,000; 122,880 formulas have at most 10,858.
_NORM_STEPS = 24
_DECODED_NORMS = np.expm1(np.arange(256) / _NORM_STEPS).astype(np.float32)
TermCodes = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Terms:
    """The terms of each tree; within a tree sorted by code, each code once."""

    # (trees + 1,) first term of each tree.
    offsets: npt.NDArray[np.int64]
    # (terms,) hash, the same on every machine; families have hashes of their own.
    code: npt.NDArray[np.uint32]
    # (terms,) index into `TERM_FAMILIES`.
    family: npt.NDArray[np.uint8]
    # (terms,) occurrences in the tree, at most 255.
    count: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def tree(self) -> Places:
        """Tree of each term: (terms,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def extract_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree; raises `ValueError` if nodes do not form trees."""
    from eqkin.formulas.kernels import find_parents, hash_terms

    parent = find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))
    if len(parent) != len(forest.label):
        raise ValueError("nodes do not form trees")
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.offsets))
    keys = hash_terms(forest.label, parent, tree, forest.properties, _SEEDS)
    statements = np.repeat(np.arange(len(forest)), np.diff(forest.form_offsets))
    # Keys sort by tree, then by the first bits of the hash, then by family.
    forms = (statements.astype(np.uint64) << np.uint64(32)) | (_hash_forms(forest.forms) >> np.uint64(32))
    forms = np.unique(forms << np.uint64(FAMILY_BITS) | np.uint64(_FORM))
    keys = np.concatenate((keys, forms))
    keys.sort()
    terms = keys >> np.uint64(FAMILY_BITS)
    first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1]))[: len(terms)])
    trees = (terms[first] >> np.uint64(32)).astype(np.int64)
    return Terms(
        offsets=accumulate(np.bincount(trees, minlength=len(forest))),
        code=terms[first].astype(np.uint32),
        family=(keys[first] & np.uint64((1 << FAMILY_BITS) - 1)).astype(np.uint8),
        count=np.minimum(np.diff(first, append=len(terms)), 255).astype(np.uint8),
    )


def add_overlaps(
    forest: OperatorForest,
    *,
    codes: npt.NDArray[np.uint32],
    families: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    saturated: npt.NDArray[np.float32],
    overlaps: npt.NDArray[np.float32],
) -> None:
    """Add up the weights of terms of a query that trees have; raises `ValueError` if nodes do not form trees.

    Args:
        forest: Trees.
        codes: Paths and trees of the query, ascending.
        families: Number of the family of each.
        weights: Weight of each for one occurrence.
        saturated: By what a weight is multiplied for each number of occurrences.
        overlaps: (families, trees) to which is added.
    """
    from eqkin.formulas import kernels

    nodes = forest.label, forest.depth, forest.offsets, forest.properties
    if not kernels.add_overlaps(*nodes, _SEEDS, codes, families, weights, saturated, overlaps):
        raise ValueError("nodes do not form trees")


def compute_form_codes(forms: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the codes of the terms of statements, given their forms (statements, FORM_KINDS)."""
    return (_hash_forms(forms) >> np.uint64(32)).astype(np.uint32)


def _hash_forms(forms: npt.NDArray[np.uint32]) -> Codes:
    return combine_hashes(_SEEDS[[_FORM]], combine_hashes(_FORM_KIND, forms[:, -1].astype(np.uint64)))


BUNDLED_FREQUENCIES = Path(__file__).parent / "frequencies.safetensors"


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies of terms."""

    # Number of formulas.
    formulas: int
    # Hashes of terms, ascending.
    codes: TermCodes
    # Number of formulas with each term.
    counts: npt.NDArray[np.uint32]

    @classmethod
    def count(cls, operators: OperatorForest, kept: int = _MIN_FORMULAS) -> DocumentFrequencies:
        """Count the terms of operator trees; terms of fewer than `kept` trees are left out."""
        codes, counts = np.unique(extract_terms(operators).code, return_counts=True)
        often = counts >= kept
        return cls(len(operators), codes[often], counts[often].astype(np.uint32))

    def save(self, path: Path = BUNDLED_FREQUENCIES) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "formulas": np.array([self.formulas], np.int64),
            "codes": self.codes,
            "counts": self.counts,
        }
        write_file(path, safetensors.save(arrays))

    @classmethod
    def load(cls, path: Path = BUNDLED_FREQUENCIES) -> DocumentFrequencies:
        """Read what `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            loaded = cls(int(arrays["formulas"][0]), arrays["codes"], arrays["counts"])
        except (OSError, SafetensorError, KeyError, ValueError, IndexError) as error:
            raise CorruptData(f"{path}: cannot be read ({error}); install eqkin again") from error
        if not loaded._is_valid():
            raise CorruptData(f"{path}: not a table of term frequencies; install eqkin again")
        return loaded

    def compute_idf(self, codes: TermCodes) -> npt.NDArray[np.float32]:
        """Return the idf weight of each term."""
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        counts = np.full(len(codes), RARE_TERM_COUNT, np.int64)
        if len(self.codes):
            is_known = self.codes[places] == codes
            counts[is_known] = self.counts[places[is_known]]
        return (np.log((1 + self.formulas) / (1 + counts)) + _MIN_IDF).astype(np.float32)

    def _is_valid(self) -> bool:
        """Return whether the hashes can be looked up, and no term is in more formulas than there are."""
        return (
            self.codes.dtype == self.counts.dtype == np.uint32
            and self.codes.ndim == 1
            and self.codes.shape == self.counts.shape
            and bool((self.codes[1:] > self.codes[:-1]).all())
            and self.formulas >= RARE_TERM_COUNT
            and int(self.counts.max(initial=0)) <= self.formulas
        )


def weigh_terms(terms: Terms, idf: DocumentFrequencies) -> Floats:
    """Return the weight of each term."""
    return np.asarray(saturate_counts(terms.count) * np.sqrt(idf.compute_idf(terms.code)), np.float32)


def saturate_counts(counts: npt.NDArray[Any]) -> Floats:
    """Return the factor by which a number of occurrences counts: 0 for none, 1 for one, less than 2 for many."""
    return np.asarray(SATURATED_COUNTS[np.minimum(counts, MAX_COUNTED)], np.float32)


def compute_norms(terms: Terms, weights: Floats) -> Floats:
    """Return the norms of formulas, given their terms and the weight of each: (COMPARED_FAMILIES, formulas)."""
    compared = terms.family < COMPARED_FAMILIES
    cells = terms.family[compared].astype(np.int64) * len(terms) + terms.tree[compared]
    norms = np.bincount(cells, weights[compared] ** 2, COMPARED_FAMILIES * len(terms))
    return norms.reshape(COMPARED_FAMILIES, len(terms)).astype(np.float32)


def encode_norms(norms: Floats) -> npt.NDArray[np.uint8]:
    """Return 8 bits for each norm. Similarities, which divide by a small power of it, are off by .8 % above 10."""
    return np.minimum(np.round(_NORM_STEPS * np.log1p(norms)), 255).astype(np.uint8)


def decode_norms(codes: npt.NDArray[np.uint8]) -> Floats:
    """Return what `encode_norms` encoded."""
    return np.asarray(_DECODED_NORMS[codes], np.float32)


def round_norms(norms: Floats) -> Floats:
    """Round norms as an index stores them."""
    return decode_norms(encode_norms(norms))


@cache
def load_bundled_frequencies() -> DocumentFrequencies:
    """Return the bundled frequencies, read once."""
    return DocumentFrequencies.load()


def extract_norms(operators: OperatorForest) -> Floats:
    """Compute the norms of formulas of which nothing is stored: (COMPARED_FAMILIES, formulas)."""
    terms = extract_terms(operators)
    return compute_norms(terms, weigh_terms(terms, load_bundled_frequencies()))
