"""What this runner keeps between processes: ledger, key, identity, and status files."""
