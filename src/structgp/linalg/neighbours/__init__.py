"""Each row given a few others: how they are found, what they tell, and its derivative."""
