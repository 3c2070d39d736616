"""The thread of every engine: its loaded models, its requests, and whose turn is next. Imports no engine."""
