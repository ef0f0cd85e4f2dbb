"""Measurements of eqkin against a peer or a limit, in one run."""
