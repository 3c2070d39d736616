"""Translates the requests and answers of other programs' clients."""
