"""The encoder: formulas to vectors. Torch is for training, numpy and numba for search, which does not import torch."""
