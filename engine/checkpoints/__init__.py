"""Model files on disk and on the hub: found, checked and read, without building a model."""
