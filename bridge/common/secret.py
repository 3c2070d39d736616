"""Judges secrets that people choose. What a program draws itself is not judged."""

# Sixteen characters of hexadecimal digits are 64 bits.
_CHARACTERS = 16
_DIFFERENT = 5


def weakness(secret: str) -> str | None:
    """Return why others could guess a secret or a program could not send it; None if it will do."""
    if len(secret) < _CHARACTERS or not secret.isascii() or not secret.isprintable():
        return f"has to be one line of at least {_CHARACTERS} ASCII characters"
    if len(set(secret)) < _DIFFERENT:
        return f"has to have at least {_DIFFERENT} different characters"
    return None
