"""What `support.preload` has a forkserver import: torchmetrics as the workers do, whatever build torchvision is of."""

from partrain.tasks.known_metrics import import_torchmetrics

import_torchmetrics()
