"""A seeded simulation of thousands of deliveries, judged side by side by tidegate's gate and by its peers."""
