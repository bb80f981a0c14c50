"""Does it help? A run beside the controls that it should beat, on held-out clean samples."""

from .comparison import Comparison as Comparison
