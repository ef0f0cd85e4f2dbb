"""Numbers that compiled loops and their callers share."""

from __future__ import annotations

# Enough for the number of any family of terms.
FAMILY_BITS = 2


class LabelKinds:
    """Bits: what the label of a node of an operator tree says about it and its outline."""

    VARIABLE, UNORDERED, APPLIED, INDEXED, DETAIL, WRAPPER, PLAIN = (1 << bit for bit in range(7))
