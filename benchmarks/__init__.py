"""Measurements: each prints ours beside a peer or a limit, from one run, as a ratio."""
