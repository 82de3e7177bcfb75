"""What a gate needs: requests and time until a verdict, and the smallest regression it can see."""
