"""Other places to keep or process a collection: Milvus and Ray."""
