"""What `make references`, `make pictures` and `make docs` run."""
