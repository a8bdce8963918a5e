"""The record of a run as data: its events and their file, the state built from them, its stop conditions and its summary."""
