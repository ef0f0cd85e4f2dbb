"""What trees are made of, counted: labels, paths, neighbours and runs of symbols, as codes that compare trees."""
