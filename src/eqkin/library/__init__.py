"""The papers, equations and trees of a collection on disk."""
