"""Container images as the Open Container Initiative specifies them, made without a container daemon."""
