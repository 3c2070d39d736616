"""The bus as the runner sees it: its own store, listing, fetch and push."""
