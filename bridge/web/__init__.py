"""``kakeya web``: a read-only page of the bus for people, served on loopback or written as files."""
