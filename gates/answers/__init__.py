"""How good an answer is: golden sets, scorers, likeness of two answers, refusals."""
