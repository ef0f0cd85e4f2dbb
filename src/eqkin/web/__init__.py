"""The page and the HTTP interface: thin, they parse, call the engine and show what it gives."""
