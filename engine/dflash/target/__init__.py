"""What the loop does to a target: taps, its embedding and head, rotary tables, clones."""
