"""What is known of a bus's host: its address, how a push to it ends, why one fails, and what helps."""
