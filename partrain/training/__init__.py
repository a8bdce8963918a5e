"""A worker's training: replica, batches, gradients, the loop of rounds."""
