"""Equations as pictures of 32 x 333 pixels: rendered by a browser, kept on disk, drawn to learn from."""
