"""How other programs' clients speak to this server: translations at its edge."""
