"""The system pages: communication and copies, CPU and idle time, kernel fusion."""
