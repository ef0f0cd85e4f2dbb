"""The encoder: formulas to vectors. Torch is for training, numpy for search; this package does not import torch."""
