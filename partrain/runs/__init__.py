"""Existing runs: found below a folder, listed, filtered, sorted, tagged and removed. Also conditions on recorded numbers."""
