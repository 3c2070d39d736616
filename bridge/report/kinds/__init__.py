"""The tables and plots of each kind of report."""
