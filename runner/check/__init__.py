"""What `kakeya-runner check`, `init` and `status` find out."""
