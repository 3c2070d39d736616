"""What a requester does: build a request, remember it, follow it, and say where it stands."""
