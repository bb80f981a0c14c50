"""How a method learns: the interface, the one loop, losses, schedules, what is remembered and measured."""
