"""Storage that knows nothing of equations: atomic files, locks, checksummed JSON and append-only segment files."""
