"""Learning: what to draw, what to hide, what to lose, and the loop that puts them together."""
