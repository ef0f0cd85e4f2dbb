"""The experiments: each gives one `Result`, row by row, and goes on where it was stopped."""
