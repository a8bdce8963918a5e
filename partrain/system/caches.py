"""The folders of the user's caches."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return the folder of the user's caches: $XDG_CACHE_HOME, else ~/.cache."""
    users = os.environ.get("XDG_CACHE_HOME")
    return Path(users) if users else Path.home() / ".cache"


def own_cache() -> Path:
    """Return partrain's folder: $PARTRAIN_CACHE, else `partrain` in the folder of the user's caches."""
    own = os.environ.get("PARTRAIN_CACHE")
    return Path(own) if own else user_cache() / "partrain"
