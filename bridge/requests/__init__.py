"""The requester's side: build a request, remember it, follow it, and show its state."""
