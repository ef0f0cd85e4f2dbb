"""Training: data, sampling, augmentation, losses, and the training loop."""
