"""What MLflow says about a model, and what it starts: authentic or not, new or heard before, now or later. Pure."""
