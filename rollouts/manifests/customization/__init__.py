"""What people change of the objects that are rendered: patches, labels and annotations of theirs."""
