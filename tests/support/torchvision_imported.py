"""Import torchvision and timm as the workers do, whatever build torchvision is: `support.preload` has a forkserver import this module."""

from contextlib import suppress

from partrain.system.torchvision import import_torchvision

import_torchvision("torchvision.models")
with suppress(ImportError):
    import timm  # noqa: F401
