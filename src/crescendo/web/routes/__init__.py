"""The routes of the web server, one module per subject."""
