"""What travels over git: names of branches, files of an answer, objects, history, pushing and fetching."""
