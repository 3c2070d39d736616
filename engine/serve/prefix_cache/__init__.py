"""The cache of prompts' beginnings, in memory and on disk."""
