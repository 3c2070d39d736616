"""One-layer autoregressive draft heads, EAGLE-3 and MTP: a decoder layer drafts a chain, token by token."""
