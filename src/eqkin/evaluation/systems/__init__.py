"""What is compared: eqkin's networks, the paper's baselines, and peers, behind one small interface."""
