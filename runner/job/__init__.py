"""Running one job: its folder, its process, its sandbox, its output and its reports."""
