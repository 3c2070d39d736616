"""Measurements that compare: arms take turns on the same prompts, and every single run is kept."""
