"""Meta Soft Label Generation."""
