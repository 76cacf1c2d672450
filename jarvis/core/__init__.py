"""Code shared by all layers: errors, output files, paths, process limits."""
