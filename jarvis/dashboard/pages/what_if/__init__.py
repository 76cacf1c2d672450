"""The *What-if* page: what a step would take under changes."""
