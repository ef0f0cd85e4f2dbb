"""Read sources of papers; every reader gives `SourceItem`s whose `load` returns a `Paper`."""
