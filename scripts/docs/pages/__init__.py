"""The generated pages: a module for each kind, with `pages()`: the text of each by its path."""
