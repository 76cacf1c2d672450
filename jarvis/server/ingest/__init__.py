"""How traces come in: uploads, paths, addresses of other hosts, and runs on other machines."""
