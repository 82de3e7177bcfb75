"""What it costs to play users, and how right their times are: our load next to its peers."""
