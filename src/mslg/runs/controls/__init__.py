"""Does the method help? A run compared with the controls that it should beat, on held-out clean samples."""

from .comparison import Comparison as Comparison
