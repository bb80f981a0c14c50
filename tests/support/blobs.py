"""The small problem of the contract checks, which every test can afford."""

from mslg.testing.problem import Blobs, blobs, same_state, small_network

__all__ = ["Blobs", "blobs", "same_state", "small_network"]
