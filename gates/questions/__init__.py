"""What the gates ask of a batch: each compares one thing of both arms, with words for both answers."""
