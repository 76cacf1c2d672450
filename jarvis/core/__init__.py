"""What every layer may use: errors, files, the workspace, limits of the process."""
