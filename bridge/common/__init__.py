"""What the client, the runner and the engine share. Imports nothing else of this project, nor MLX, nor GitPython."""
