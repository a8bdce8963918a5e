"""What `support.preload` has a forkserver import: torchvision and timm as the workers do, whatever build torchvision is of."""

from contextlib import suppress

from partrain.system.torchvision import import_torchvision

import_torchvision("torchvision.models")
with suppress(ImportError):
    import timm  # noqa: F401
