"""Random trees of rows, blanks and letters, also in unlikely places."""

from hypothesis import strategies as st

TAGS = st.sampled_from(["mi", "mi", "mo", "mn", "mtext", "mspace", "mrow", "mrow", "mstyle", "mpadded", "mfrac", "mtd"])
ATTRIBUTES = st.sampled_from(["", "", "mathvariant=bold", "mathvariant=normal", "stretchy=false"])
TEXTS = st.sampled_from(["", " ", "x", "x", "y", "z", "a b", "a\u2003b"])
TREES = st.recursive(
    st.tuples(TAGS, ATTRIBUTES, TEXTS, st.just([])),
    lambda children: st.tuples(TAGS, ATTRIBUTES, TEXTS, st.lists(children, max_size=5)),
    max_leaves=30,
)
