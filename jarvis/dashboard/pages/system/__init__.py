"""The system pages: multi-kernel, CPU and idle time, kernel fusion."""
