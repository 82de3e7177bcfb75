"""How results look on a terminal, as Markdown and as JSON. Pure: nothing is asked or written here."""
