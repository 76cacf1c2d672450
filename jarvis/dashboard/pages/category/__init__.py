"""A category page: roofline, findings and operations of one category."""
