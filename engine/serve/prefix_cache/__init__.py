"""The cache of prompt prefixes, in memory and on disk."""
