"""What models are trained on."""
