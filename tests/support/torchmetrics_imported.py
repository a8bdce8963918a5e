"""Import torchmetrics as the workers do, whatever build torchvision is: `support.preload` has a forkserver import this module."""

from partrain.tasks.known_metrics import import_torchmetrics

import_torchmetrics()
