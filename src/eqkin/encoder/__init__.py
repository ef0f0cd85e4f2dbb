"""The encoder, twice: torch for learning, numpy for searching. Importing this package does not import torch."""
