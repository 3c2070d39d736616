"""What is known about a bus's host: its address, how a push ends, why a push fails, and what helps."""
