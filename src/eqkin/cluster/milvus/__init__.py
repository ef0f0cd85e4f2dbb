"""A library on a Milvus server, from which any number of machines can serve it."""
