"""Serving from Milvus: push a library into a collection, and search that collection."""
