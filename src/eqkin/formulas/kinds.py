"""Numbers that compiled loops and their callers share."""

from __future__ import annotations

FAMILY_BITS = 2  # of the number of a family of terms


class LabelKinds:
    """Bits: what the label of a node of an operator tree says about it and its outline."""

    VARIABLE, UNORDERED, APPLIED, INDEXED, DETAIL, WRAPPER, PLAIN = (1 << bit for bit in range(7))
