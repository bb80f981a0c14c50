"""A run as two folders that the Hugging Face hub takes as they are: the model, and the cleaned data set."""
