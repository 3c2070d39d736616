"""Running the steps of a claimed request: once in order, or in two trees that are compared."""
