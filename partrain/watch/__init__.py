"""`partrain watch`: runs as they train, seen from another process, which reads their folders only."""
