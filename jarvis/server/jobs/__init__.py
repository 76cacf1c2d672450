"""What jobs do, and the worker that runs them in processes or on Dask."""
