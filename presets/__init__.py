"""The presets that are installed with the program: data, one YAML file each."""
