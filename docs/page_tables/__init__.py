"""The tables of the pages on what was run, written from the files under `results/`, one module for each page."""
