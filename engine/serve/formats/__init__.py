"""What a model reads and writes beside plain text: templates, calls, thoughts, and grammars that bind its answer."""
