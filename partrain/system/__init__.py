"""This process and this machine: environment, memory, standard streams, files."""
