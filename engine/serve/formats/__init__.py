"""The formats of a model's input and output: templates, calls, thoughts, and grammars that constrain its answer."""
