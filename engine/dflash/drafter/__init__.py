"""The DFlash drafter: its layers, its context, and its files."""
