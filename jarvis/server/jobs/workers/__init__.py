"""Who does the jobs of the queue: a worker, its processes here, and those of a Dask cluster."""
