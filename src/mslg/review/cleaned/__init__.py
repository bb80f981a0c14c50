"""From a run and a reviewer's decisions to a cleaned data set."""
