"""Where a number lives, what is believed of it, and how it is learned, frozen and tied."""
