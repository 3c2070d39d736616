"""What this runner keeps between processes: ledger, key, identity, and files that others read."""
