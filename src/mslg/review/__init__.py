"""From suspects to clean data: decisions, cleaned data sets, the next round, and the page to review on."""
