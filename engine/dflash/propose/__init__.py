"""Who proposes the next tokens, and how many: the drafter, the text itself, or neither."""
