"""Proposes the next tokens, with the drafter or from the text so far, and decides how many, if any."""
