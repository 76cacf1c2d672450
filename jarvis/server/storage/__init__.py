"""Storage of analyses, uploads and exports: catalog, shared artifact root, retention."""
