"""The requester's side: builds, records and follows requests, and shows their state."""
