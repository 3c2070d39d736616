"""Code that client, runner and engine share. It imports nothing else of this project, nor MLX or GitPython."""
