"""How the bundled models were made: ``python -m training``, from a checkout. It is not installed with the engine."""
