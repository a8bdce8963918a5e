"""The commands behind `make references`, `make pictures` and `make docs`."""
