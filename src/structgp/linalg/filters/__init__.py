"""What a chain knows: filters, smoothers, marginals, forecasts, in linear time."""
