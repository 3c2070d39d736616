"""The recipe of the bundled targets."""
