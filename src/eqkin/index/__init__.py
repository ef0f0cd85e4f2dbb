"""The index of a library: dense vectors, sparse terms and text. Derived data: all of it can be built again."""
