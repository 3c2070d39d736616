"""What is done beside requests: retention, and a look at what blocks the bus."""
