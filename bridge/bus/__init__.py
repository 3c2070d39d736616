"""The data that travels over git: branch names, answer files, objects, history, pushing and fetching."""
