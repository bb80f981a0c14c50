"""A method, a noise, a data set and a network for mslg, kept in a package of their own."""
