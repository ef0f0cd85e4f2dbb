"""The web page and the HTTP interface: they parse requests, call the engine and render its results."""
