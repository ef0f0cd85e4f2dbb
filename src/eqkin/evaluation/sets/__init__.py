"""What is measured on: labelled and judged formulas, queries with keywords, triples, sides of equalities."""
