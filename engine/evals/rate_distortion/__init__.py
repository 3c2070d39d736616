"""How much error a codec makes at how many bits."""
