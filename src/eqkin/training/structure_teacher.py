r"""Structure as a teacher: trees made of the same terms are to be alike, rare terms counting more.

A tree is a vector of length 1 over 2^14 columns, to which its terms (`structure.terms`) are hashed; a term that occurs
c times and belongs to a column of d among n trees has the value

$$ \frac{2c}{c + 1} \sqrt{\ln \frac{1 + n}{1 + d} + 0.1} $$

The network is taught to find trees near each other in proportion: for each tree i of a batch, P_i is the softmax of the
cosines of these vectors over the batch's other trees, Q_i that of the embeddings' cosines, both at one temperature, and

$$ \ell = \frac{1}{m} \sum_i KL(P_i \| Q_i). $$
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from eqkin.training.ranks import select_rows
from eqkin.training.tables import select_heaviest
from eqkin.trees import Forest
from eqkin.trees.terms import extract_terms

COLUMN_BITS = 14
COLUMNS = 1 << COLUMN_BITS
TERMS = 256  # of a tree that are kept, the heaviest
_PART = 20_000  # trees worked on at a time
_IDF_FLOOR = 0.1  # that even a term of all trees counts
MASKED_LOGIT = -1e4  # in place of a logit that must not count

Integers = npt.NDArray[np.int64]


class StructureTables:
    """The vectors of all trees of a forest on a device: columns and values of the heaviest terms of each.

    Args:
        forest: The trees; how rare a term is goes by them.
        device: Where to keep the tables.
    """

    def __init__(self, forest: Forest, device: torch.device) -> None:
        offsets, column, count = _hash_terms(forest)
        rarity = np.log((1 + len(forest)) / (1 + np.bincount(column, minlength=COLUMNS))) + _IDF_FLOOR
        value = (2 * count / (count + np.float32(1)) * np.sqrt(rarity).astype(np.float32)[column]).astype(np.float32)
        column_table, value_table = np.zeros((len(forest), TERMS), np.int16), np.zeros((len(forest), TERMS), np.float16)
        for start in range(0, len(forest), _PART):
            part, rows = offsets[start : start + _PART + 1], slice(start, start + _PART)
            here = slice(int(part[0]), int(part[-1]))
            column_table[rows], value_table[rows] = _build_rows(part - part[0], column[here], value[here])
        self._column = torch.from_numpy(column_table).to(device)
        self._value = torch.from_numpy(value_table).to(device)

    def __len__(self) -> int:
        return len(self._column)

    @property
    def bytes(self) -> int:
        """Bytes of the tables."""
        return sum(table.numel() * table.element_size() for table in (self._column, self._value))

    def to_dense(self, trees: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors of some trees, (trees, 2^14).

        A row with fewer terms than there is room for repeats its first one: the same value is written there again.
        """
        rows = torch.zeros(len(trees), COLUMNS, dtype=dtype, device=trees.device)
        return rows.scatter(1, self._column[trees].long(), self._value[trees].to(dtype))


def _hash_terms(forest: Forest) -> tuple[Integers, npt.NDArray[np.uint16], npt.NDArray[np.float32]]:
    """Where each tree's columns begin, its columns in ascending order, each once, and the counts of their terms."""
    terms = extract_terms(forest)
    sizes, columns, counts = [np.zeros(1, np.int64)], [np.zeros(0, np.uint16)], [np.zeros(0, np.float32)]
    for start in range(0, len(forest), _PART):
        part = terms.offsets[start : start + _PART + 1]
        here = slice(int(part[0]), int(part[-1]))
        tree = np.repeat(np.arange(len(part) - 1), np.diff(part))
        key = tree << COLUMN_BITS | (terms.code[here] >> (32 - COLUMN_BITS))  # ascending, as the codes of a tree are
        first = np.flatnonzero(np.diff(key, prepend=-1))
        sizes.append(np.bincount(key[first] >> COLUMN_BITS, minlength=len(part) - 1))
        columns.append((key[first] & (COLUMNS - 1)).astype(np.uint16))
        counts.append(np.add.reduceat(terms.count[here], first, dtype=np.float32) if len(first) else counts[0])
    return np.cumsum(np.concatenate(sizes)), np.concatenate(columns), np.concatenate(counts)


def _build_rows(
    offsets: Integers, column: npt.NDArray[np.uint16], value: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float16]]:
    """Columns and values of the heaviest terms of each tree, scaled to length 1; the first one fills up the row."""
    table, real = select_heaviest(offsets, value, TERMS)
    columns, values = np.append(column, np.uint16(0))[table], np.append(value, np.float32(0))[table]
    values[offsets[1:] == offsets[:-1]] = 0
    length = np.sqrt(np.where(real, values**2, 0).sum(1, keepdims=True)).clip(1e-6)
    return columns.astype(np.int16), (values / length).astype(np.float16)


def structure_loss(
    embeddings: Tensor, teacher: Tensor, same: Tensor, temperature: float, rows: Tensor | None = None
) -> Tensor:
    """The mean of KL(P_i || Q_i) over the rows, or over some of them.

    Args:
        embeddings: Of length 1, (m, dimensions).
        teacher: The rows' vectors by structure, of length 1 too.
        same: (rows, m) pairs that don't count, such as each with itself.
        temperature: Of both.
        rows: Numbers of the rows; None for all.
    """
    wanted, given = select_rows(teacher, rows) @ teacher.T, select_rows(embeddings, rows) @ embeddings.T
    taught = functional.log_softmax((wanted.float() / temperature).masked_fill(same, MASKED_LOGIT), dim=1)
    found = functional.log_softmax((given / temperature).masked_fill(same, MASKED_LOGIT), dim=1)
    return (taught.exp() * (taught - found)).masked_fill(same, 0.0).sum(1).mean()
