"""Evaluation: measures, labelled and judged sets, systems to compare, and tables with intervals and tests."""
