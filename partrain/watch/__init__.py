"""`partrain watch`: runs during training, seen from another process, which only reads their folders."""
