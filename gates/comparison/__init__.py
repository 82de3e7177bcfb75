"""Two endpoints side by side on a golden set: asked in pairs, judged after every pair."""
