"""The HTTP side of the server: the API and the middleware around the pages."""
