"""How the loop uses a target: taps, embedding and head, rotary tables, clones."""
