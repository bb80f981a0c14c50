"""Data: batches, sources, splits, images, texts, augmentation, and one reader per format or data set."""
