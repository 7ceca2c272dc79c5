"""Pictures as inline SVG: fluid in width, coloured by the page's style, text never stretched."""
