"""Search: candidates, fusion, grouping, and why a hit was found."""
