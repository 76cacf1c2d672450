"""What is kept: analyses and their list, files that machines share, and how they go again."""
