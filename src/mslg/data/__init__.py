"""What is learned from: batches, sources, splits, images, texts, augmentation, and the readers of every format."""
