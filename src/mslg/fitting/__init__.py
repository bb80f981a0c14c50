"""`mslg.fit`: prepare a run, then execute it."""
