"""MLX: how an answer is decoded in turns, with drafts, and what it may need of memory."""
