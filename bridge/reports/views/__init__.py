"""The tables and plots of each kind of report, as the engine's terminal and the client's pages show them."""
