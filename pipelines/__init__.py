"""An example pipeline with the exit handler."""
