"""TextWorld-Express: small text games at ten thousand steps a second."""
