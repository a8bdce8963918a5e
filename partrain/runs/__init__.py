"""Existing runs: found below a folder, listed, filtered, sorted, tagged and removed. Conditions on recorded numbers, too."""
