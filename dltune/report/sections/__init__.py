"""Parts of the page that need more than a few lines, a file each."""
