"""Every experiment of the paper, repeated with intervals, baselines and peers; run with `python -m research`."""
