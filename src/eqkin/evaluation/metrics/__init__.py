"""Measures of rankings, one a file, each a plain function with its formula."""
