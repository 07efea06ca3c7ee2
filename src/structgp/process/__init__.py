"""A Gaussian process given data: the door, what is believed afterwards, streams and many series."""
